"""Continue a sequence whose steps grow evenly; the hint is the steps.

family: growing
skill: Pattern Recognition
setting: compact
kind: single_turn
split: train
knobs: 9 -> 5 9 15
"""


class GrowEnv(QAEnv):
    def task(self, rng):
        a, b, c = [rng.randint(1, 9) for _ in range(3)]
        w = [b + c * i for i in range(4)]
        xs = [a + sum(w[:i]) for i in range(5)]
        return ("grow", xs[:-1]), xs[-1], ("add", w)
