"""Break a hidden colour code from exact and misplaced counts.

family: code_breaker
skill: Logical Deduction
setting: games
kind: hidden_state
split: train
"""

import itertools
import random
import re


def score(code, guess):
    """Exact places, and right letters in wrong places."""
    exact = sum(a == b for a, b in zip(code, guess))
    common = sum(min(code.count(c), guess.count(c)) for c in set(guess))
    return exact, common - exact


class CodeBreakerEnv:
    def __init__(self, max_turns=8):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns, self.over = 0, False
        self.letters = sorted(rng.sample("ABCDEFGHKLMNP", 6))
        self.every = ["".join(code) for code in itertools.product(self.letters, repeat=3)]
        rng.shuffle(self.every)
        self.tried = []
        while True:
            self.code = rng.choice(self.every)
            if 4 <= self._length() <= 6:
                return self._view("The code is set."), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "The game is over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip().upper()
        match = re.fullmatch(r"GUESS ([A-Z]{3})", text)
        if not match or not set(match.group(1)) <= set(self.letters):
            return self._end("That is not a code of three of the letters.")
        guess = match.group(1)
        if guess == self.code:
            self.over = True
            return "The lock opens.", 1.0, True, False, {}
        self.tried.append((guess, score(self.code, guess)))
        return self._end("Not the code.")

    def solution(self):
        return f"guess {self._consistent(self.tried)}"

    def hint(self):
        kinds = len(set(self.code))
        first = self.letters.index(self.code[0])
        half = self.letters[:3] if first < 3 else self.letters[3:]
        return (
            f"The code uses {kinds} different letters and starts with one of {', '.join(half)}. "
            "Only guess codes that would explain every answer so far."
        )

    def close(self):
        pass

    def _consistent(self, tried):
        for code in self.every:
            if all(score(code, guess) == marks for guess, marks in tried):
                return code

    def _length(self):
        tried = []
        while True:
            guess = self._consistent(tried)
            tried.append((guess, score(self.code, guess)))
            if guess == self.code:
                return len(tried)

    def _end(self, text):
        if self.turns >= self.max_turns:
            self.over = True
            return f"{text} No turns left; the code was {self.code}.", 0.0, False, True, {}
        return self._view(text), 0.0, False, False, {}

    def _view(self, last):
        lines = [f"{g}: {e} exact, {m} misplaced" for g, (e, m) in self.tried] or ["none yet"]
        return (
            f"A lock hides three letters out of {' '.join(self.letters)}; letters may repeat.\n"
            f"Guesses so far:\n" + "\n".join(lines) + f"\n{last} Turn {self.turns + 1} of "
            f"{self.max_turns}.\nAct with \\boxed{{guess XYZ}}, XYZ being three of the letters."
        )
