"""Toggle two lamps of a row; the hint is the row after the first.

family: lamps
skill: Causal Inference
setting: compact
kind: single_turn
split: train
knobs: 5 -> 4 5 6
"""


class LampsEnv(QAEnv):
    def task(self, rng):
        xs = [rng.randint(0, 1) for _ in range(5)]
        ys = rng.sample(range(5), 2)
        q = ("lamps", xs, "press", [i + 1 for i in ys])
        w = xs[:]
        w[ys[0]] ^= 1
        s = w[:]
        s[ys[1]] ^= 1
        return q, s, w
