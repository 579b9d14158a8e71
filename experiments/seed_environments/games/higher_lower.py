"""Find a hidden number from "higher" and "lower".

family: higher_lower
skill: Mathematical Reasoning
setting: games
kind: hidden_state
split: train
size: small
"""

import random
import re


class HigherLowerEnv:
    def __init__(self, max_turns=9):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns, self.over = 0, False
        # Bounds are exclusive, so that no bound is ever the number itself.
        self.low = rng.randint(0, 60)
        self.high = self.low + rng.randint(100, 124)
        options = [n for n in range(self.low + 1, self.high) if 6 <= self._halvings(n) <= 7]
        self.number = rng.choice(options)
        return self._view(), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "Game over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip().lower()
        match = re.fullmatch(r"try ([0-9]{1,4})", text)
        if not match:
            return self._end("Bad command.")
        guess = int(match.group(1))
        if guess == self.number:
            self.over = True
            return "Found it.", 1.0, True, False, {}
        if guess < self.number:
            self.low = max(self.low, guess)
            return self._end("Higher.")
        self.high = min(self.high, guess)
        return self._end("Lower.")

    def solution(self):
        return f"try {(self.low + self.high) // 2}"

    def hint(self):
        return f"Halve the range each time. The number leaves remainder {self.number % 7} modulo 7."

    def close(self):
        pass

    def _halvings(self, number):
        low, high, count = self.low, self.high, 1
        while (low + high) // 2 != number:
            middle = (low + high) // 2
            low, high = (middle, high) if middle < number else (low, middle)
            count += 1
        return count

    def _end(self, text):
        if self.turns >= self.max_turns:
            self.over = True
            return f"{text} No turns left.", 0.0, False, True, {}
        return f"{text} {self._view()}", 0.0, False, False, {}

    def _view(self):
        return f"Hidden: above {self.low}, below {self.high}. try N"
