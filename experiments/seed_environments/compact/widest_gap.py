"""Find the widest gap between neighbours of a rising list; the hint is its two ends.

family: widest_gap
skill: Optimization
setting: compact
kind: single_turn
split: held_out
knobs: 4 -> 3 4 5
"""


class GapEnv(QAEnv):
    def task(self, rng):
        xs = sorted(rng.sample(range(20, 70), 4))
        s, a, b = max((b - a, a, b) for a, b in zip(xs, xs[1:]))
        return ("gap", xs), s, (a, b)
