"""Read pieces of a hidden tape, then say what stands far along it.

family: hidden_period
skill: Pattern Recognition
setting: games
kind: hidden_state
split: train
"""

import random
import re

LETTERS = "abcdef"
WINDOW = 18  # letters of the tape that can be read


class HiddenPeriodEnv:
    def __init__(self, max_turns=9):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns, self.over = 0, False
        while True:
            self.base = [rng.randrange(6) for _ in range(rng.randint(4, 6))]
            self.shift = rng.randint(0, 2)
            self.place = rng.randint(60, 99)
            if len(set(self.base)) > 2 and self._read(self.place) not in self._tape(range(WINDOW)):
                break
        self.known = set()
        return self._view("The tape lies covered."), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "The game is over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip().lower()
        say = re.fullmatch(r"say ([a-f]{3})", text)
        if say:
            if say.group(1) == self._read(self.place):
                self.over = True
                return "That is what stands there.", 1.0, True, False, {}
            return self._end("That does not stand there.")
        peek = re.fullmatch(r"peek ([0-9]{1,4})", text)
        if not peek or int(peek.group(1)) > WINDOW - 3:
            return self._end("That is not a place to read from.")
        start = int(peek.group(1))
        self.known |= {start, start + 1, start + 2}
        return self._end("Three letters are uncovered.")

    def solution(self):
        covered = [place for place in range(15) if place not in self.known]
        return f"peek {covered[0]}" if covered else f"say {self._read(self.place)}"

    def hint(self):
        told = f"each time with all letters {self.shift} further on" if self.shift else "unchanged"
        return f"The pattern has {len(self.base)} letters and repeats, {told} (f is followed by a)."

    def close(self):
        pass

    def _read(self, start):
        return self._tape(range(start, start + 3))

    def _tape(self, places):
        size = len(self.base)
        return "".join(
            LETTERS[(self.base[p % size] + self.shift * (p // size)) % 6] for p in places
        )

    def _end(self, text):
        if self.turns >= self.max_turns:
            self.over = True
            return f"{text} No turns left.", 0.0, False, True, {}
        return self._view(text), 0.0, False, False, {}

    def _view(self, last):
        tape = "".join(self._tape([p]) if p in self.known else "?" for p in range(WINDOW))
        return (
            f"A long tape follows a rule, in letters a to f. Places 0 to {WINDOW - 1}: {tape}\n"
            f"Find the three letters at places {self.place} to {self.place + 2}. "
            f"{last} Turn {self.turns + 1} of {self.max_turns}.\nAct with \\boxed{{peek N}} to "
            f"uncover three letters from place N (0 to {WINDOW - 3}), or \\boxed{{say LLL}}."
        )
