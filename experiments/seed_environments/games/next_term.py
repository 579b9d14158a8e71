"""Continue a number sequence whose rule mixes two simple ones.

family: next_term
skill: Pattern Recognition
setting: games
kind: single_turn
split: train
size: small
"""

import random
import re


class NextTermEnv:
    def __init__(self, max_turns=3):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns, self.over = 0, False
        while True:
            self.shown, self.answer, self.rule = self._draw(rng)
            if self.answer not in self.shown and self.answer > 9:
                return self._view(), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "Game over.", 0.0, True, False, {}
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
        return self.rule

    def close(self):
        pass

    def _draw(self, rng):
        kind = rng.randrange(4)
        a, b, c = rng.randint(2, 9), rng.randint(2, 9), rng.randint(1, 5)
        if kind == 0:
            terms = [a + b * i + c * i * i for i in range(6)]
            rule = "The differences grow by the same amount each time."
        elif kind == 1:
            terms = [a, b]
            while len(terms) < 7:
                terms.append(terms[-1] + terms[-2] + c)
            rule = "Each term comes from the two before it, plus a constant."
        elif kind == 2:
            terms = [
                (a + b * (i // 2)) if i % 2 == 0 else (40 + a - c * (i // 2)) for i in range(7)
            ]
            rule = "Two sequences take turns; look at every second term."
        else:
            terms = [a]
            while len(terms) < 6:
                terms.append(terms[-1] * 2 + (c if len(terms) % 2 else -1))
            rule = "Each term is about twice the one before; watch what is added, it alternates."
        return terms[:-1], terms[-1], rule

    def _view(self):
        return "Next term? " + " ".join(map(str, self.shown))
