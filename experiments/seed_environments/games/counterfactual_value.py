"""Say what would have been, in a small model with unseen causes.

family: counterfactual_value
skill: Causal Inference
setting: games
kind: single_turn
split: train
size: small
"""

import random
import re


class CounterfactualValueEnv:
    def __init__(self, max_turns=3):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns, self.over = 0, False
        while True:
            self.a, self.b, self.c = rng.randint(2, 4), rng.randint(2, 4), rng.randint(2, 4)
            self.u, self.v = rng.randint(1, 9), rng.randint(1, 9)
            self.x = rng.randint(1, 5)
            self.z = self.a * self.x + self.u
            self.y = self.b * self.x + self.c * self.z + self.v
            self.cause, self.value = rng.choice("xz"), rng.randint(1, 9)
            x, z = (self.value, None) if self.cause == "x" else (self.x, self.value)
            z = self.a * x + self.u if z is None else z
            self.answer = self.b * x + self.c * z + self.v
            if self.value != (self.x if self.cause == "x" else self.z):
                if self.answer > 9 and self.answer not in (self.y, self.z):
                    return self._view(), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "The game is over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip()
        if text == str(self.answer):
            self.over = True
            return "Right.", 1.0, True, False, {}
        if self.turns >= self.max_turns:
            self.over = True
            return f"Wrong. It was {self.answer}.", 0.0, False, True, {}
        return f"Wrong. {self._view()}", 0.0, False, False, {}

    def solution(self):
        return str(self.answer)

    def hint(self):
        rest = "z follows x" if self.cause == "x" else "x stays"
        return f"Unseen u={self.u} and v={self.v} stay; {rest}."

    def close(self):
        pass

    def _view(self):
        return (
            f"z={self.a}x+u y={self.b}x+{self.c}z+v saw x={self.x} z={self.z} y={self.y}; "
            f"y if {self.cause}={self.value}?"
        )
