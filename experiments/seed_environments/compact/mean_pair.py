"""Find the mean of two numbers; the hint is their sum.

family: mean_pair
skill: Mathematical Reasoning
setting: compact
kind: single_turn
split: train
knobs: 30 -> 9 30 60
"""


class MeanEnv(QAEnv):
    def task(self, rng):
        a, b = rng.randint(1, 30), rng.randint(1, 9)
        xs = [a, a + 2 * b]
        rng.shuffle(xs)
        return ("mean", xs), a + b, ("total", sum(xs))
