"""Find where two stretches of a line overlap; the hint is all starts and ends.

family: overlap
skill: Spatial Reasoning
setting: compact
kind: single_turn
split: train
knobs: 30 -> 15 30 60
"""


class OverlapEnv(QAEnv):
    def task(self, rng):
        a, b, c, d = sorted(rng.sample(range(1, 30), 4))
        xs = [(a, c), (b, d)]
        rng.shuffle(xs)
        return ("overlap", xs[0], "and", xs[1]), (b, c), ("from", a, b, "to", c, d)
