"""Multiply a two-digit number by a digit; the hint is the two partial products.

family: times
skill: Mathematical Reasoning
setting: compact
kind: single_turn
split: train
knobs: 5 -> 2 5 9
"""


class TimesEnv(QAEnv):
    def task(self, rng):
        a, b, n = rng.randint(1, 5), rng.randint(1, 9), rng.randint(2, 9)
        s = (10 * a + b) * n
        return ("times", 10 * a + b, n), s, (10 * a * n, b * n)
