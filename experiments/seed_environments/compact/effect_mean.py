"""Compare the means before and after a treatment; the hint is the two means.

family: effect_mean
skill: Causal Inference
setting: compact
kind: single_turn
split: train
knobs: 9 -> 3 9 15
"""


class EffectEnv(QAEnv):
    def task(self, rng):
        a, n = rng.randint(30, 60), rng.randint(10, 29)
        b, c = rng.randint(1, 9), rng.randint(1, 9)
        s = a + n
        return ("before", a - b, a + b, "after", s - c, s + c), n, ("mean", a, s)
