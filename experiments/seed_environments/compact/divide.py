"""Divide with remainder; the hint is the nearest multiple below.

family: divide
skill: Mathematical Reasoning
setting: compact
kind: single_turn
split: train
knobs: 9 -> 5 9 12
"""


class DivideEnv(QAEnv):
    def task(self, rng):
        n, a = rng.randint(2, 9), rng.randint(2, 9)
        b = rng.randint(1, n - 1)
        return ("divide", a * n + b, n), (a, b), (a, "x", n, "is", a * n)
