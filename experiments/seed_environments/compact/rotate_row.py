"""Move letters from the front of a row to its end; the hint is the part that stays.

family: rotate_row
skill: Spatial Reasoning
setting: compact
kind: single_turn
split: held_out
knobs: 5 -> 4 5 6
"""


class RotateEnv(QAEnv):
    def task(self, rng):
        xs = rng.sample("abcdefgh", 5)
        n = rng.randint(1, len(xs) - 1)
        w = xs[n:]
        return ("rotate", n, xs), w + xs[:n], w
