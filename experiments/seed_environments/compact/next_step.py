"""Continue an arithmetic sequence; the hint is its step.

family: next_step
skill: Pattern Recognition
setting: compact
kind: single_turn
split: train
knobs: 9 -> 5 9 20
"""


class NextEnv(QAEnv):
    def task(self, rng):
        a, b = rng.randint(1, 50), rng.randint(2, 9)
        xs = [a + b * i for i in range(5)]
        return ("next", xs[:-1]), xs[-1], ("add", b)
