"""Find the length of the fence around a rectangle; the hint is half of it.

family: fence
skill: Spatial Reasoning
setting: compact
kind: single_turn
split: train
knobs: 30 -> 9 30 60
"""


class FenceEnv(QAEnv):
    def task(self, rng):
        a, b = rng.randint(2, 30), rng.randint(2, 30)
        return ("fence", a, "by", b), 2 * (a + b), ("half", a + b)
