"""Foretell a response from two doses of a linear effect; the hint is what the rest adds.

family: dose
skill: Causal Inference
setting: compact
kind: single_turn
split: train
knobs: 5 -> 3 5 9
"""


class DoseEnv(QAEnv):
    def task(self, rng):
        a, b, n = [rng.randint(1, 9) for _ in range(3)]
        m = rng.randint(2, 5)
        s = a + b * n
        q = ("dose", n, "is", s - b, n + 1, "is", s, "then", n + 1 + m)
        return q, s + b * m, (b, "x", m, "is", b * m)
