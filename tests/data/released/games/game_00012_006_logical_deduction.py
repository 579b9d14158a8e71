"""Safe Cracker: terminal partial reward and a negative one, info with text."""
import random
import re
from enum import Enum
from functools import lru_cache


class Mark(Enum):
    EXACT = "="
    NEAR = "~"
    MISS = "."


@lru_cache(maxsize=None)
def marks(secret, guess):
    return "".join(
        (Mark.EXACT if s == g else Mark.NEAR if g in secret else Mark.MISS).value
        for s, g in zip(secret, guess)
    )


class SafeCrackerEnv:
    """Crack a code of three different digits; the alarm costs."""

    def __init__(self, max_turns=7, digits=3):
        self.max_turns = max_turns
        self.digits = digits

    def reset(self, *, seed=None, options=None):
        rng = random.Random(seed)
        self.secret = "".join(rng.sample("123456", self.digits))
        self.log = []
        return self._show("A safe with three different digits from 1 to 6."), {"seed": seed}

    def _show(self, text):
        past = " | ".join(f"{g} {m}" for g, m in self.log) or "none"
        return f"{text}\nGuesses: {past}. Answer \\boxed{{123}}; = right place, ~ elsewhere, . not."

    def step(self, action):
        found = re.findall(r"\\boxed\{\s*(\d+)\s*\}", str(action))
        if not found or len(found[-1]) != self.digits:
            return self._show("Three digits, please."), 0.0, False, False, {"reason": "format"}
        guess = found[-1]
        if guess == "000":
            return "The alarm rings.", -1.0, True, False, {"reason": "alarm"}
        self.log.append((guess, marks(self.secret, guess)))
        if guess == self.secret:
            return "Open.", 1.0, True, False, {}
        if len(self.log) >= self.max_turns:
            exact = self.log[-1][1].count("=")
            return "Locked for good.", 0.3 * exact / self.digits, True, False, {}
        return self._show("The lock clicks."), 0.0, False, False, {}

    def close(self):
        self.log = []

    def solution(self):
        return self.secret
