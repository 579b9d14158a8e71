"""Name the most frequent letter and its count; the hint counts the others.

family: most_common
skill: Pattern Recognition
setting: compact
kind: single_turn
split: train
knobs: 5 -> 4 5 6
"""


class MostEnv(QAEnv):
    def task(self, rng):
        a, b, c = rng.sample("abcdefgh", 3)
        n = rng.randint(3, 5)
        xs = [a] * n + [b] * (n - 1) + [c]
        rng.shuffle(xs)
        return ("most", xs), (a, n), (b, n - 1, c, 1)
