"""Feed small numbers to a machine, then say what it does to a large one.

family: machine_rule
skill: Pattern Recognition
setting: games
kind: hidden_state
split: train
size: small
"""

import random
import re


class MachineRuleEnv:
    def __init__(self, max_turns=8):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns, self.over = 0, False
        self.kind = rng.choice(["line", "square", "odd"])
        self.a, self.b, self.c = rng.randint(2, 9), rng.randint(1, 20), rng.randint(2, 9)
        self.asked = rng.randint(11, 25)
        self.known = {}
        return self._view(), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "The game is over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip().lower()
        match = re.fullmatch(r"(try|say) ([0-9]{1,6})", text)
        if not match:
            return self._end("Bad command.")
        number = int(match.group(2))
        if match.group(1) == "try":
            if number > 3:
                return self._end("0 to 3.")
            self.known[number] = self._rule(number)
            return self._end("")
        if number == self._rule(self.asked):
            self.over = True
            return "Right.", 1.0, True, False, {}
        return self._end("No.")

    def solution(self):
        for number in range(4):
            if number not in self.known:
                return f"try {number}"
        return f"say {self._rule(self.asked)}"

    def hint(self):
        if self.kind == "line":
            return f"f grows by {self.a} each step."
        if self.kind == "square":
            return f"f is {self.a} times the square, plus a constant."
        return f"f grows by {self.a} a step, and odd inputs get {self.c} more."

    def close(self):
        pass

    def _rule(self, x):
        if self.kind == "line":
            return self.a * x + self.b
        if self.kind == "square":
            return self.a * x * x + self.b
        return self.a * x + self.b + self.c * (x % 2)

    def _end(self, text):
        if self.turns >= self.max_turns:
            self.over = True
            return f"{text} No turns left.".strip(), 0.0, False, True, {}
        return f"{text} {self._view()}".strip(), 0.0, False, False, {}

    def _view(self):
        known = "".join(f"f{x}={y} " for x, y in sorted(self.known.items()))
        return f"{known}f{self.asked}? try N (0-3) or say V"
