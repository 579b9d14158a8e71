"""Tell row and column of a letter in a grid of three columns; the hint is its row.

family: find_cell
skill: Spatial Reasoning
setting: compact
kind: single_turn
split: train
knobs: 9 -> 6 9 12
"""


class FindEnv(QAEnv):
    def task(self, rng):
        xs = rng.sample("abcdefghijkl", 9)
        i = rng.randrange(9)
        w = [" ".join(xs[j:j + 3]) for j in range(0, 9, 3)]
        s = i // 3
        return ("find", xs[i], "in", " / ".join(w)), (s + 1, i % 3 + 1), ("row", s + 1, w[s])
