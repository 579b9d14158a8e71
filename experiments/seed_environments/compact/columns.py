"""Read two rows of letters column by column; the hint lacks the last column.

family: columns
skill: Spatial Reasoning
setting: compact
kind: single_turn
split: train
knobs: 3 -> 2 3 4
"""


class ColumnsEnv(QAEnv):
    def task(self, rng):
        a, b = rng.sample("abcdefgh", 3), rng.sample("abcdefgh", 3)
        w = [c + d for c, d in zip(a, b)]
        return ("columns", a, "/", b), w, w[:-1]
