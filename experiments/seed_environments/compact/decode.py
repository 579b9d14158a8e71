"""Decode digits with a table of letters; the hint lacks the last letter.

family: decode
skill: Logical Deduction
setting: compact
kind: single_turn
split: train
knobs: 3 -> 2 3 4
"""


class DecodeEnv(QAEnv):
    def task(self, rng):
        xs = rng.sample("abcdefgh", 5)
        ys = [rng.randint(1, 5) for _ in range(3)]
        w = [xs[i - 1] for i in ys]
        q = [f"{i}{c}" for i, c in enumerate(xs, 1)]
        return ("decode", ys, "by", q), w, w[:-1]
