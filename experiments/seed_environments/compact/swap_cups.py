"""Track cups through two swaps; the hint is the row after the first.

family: swap_cups
skill: Logical Deduction
setting: compact
kind: single_turn
split: train
knobs: 4 -> 3 4 5
"""


class SwapEnv(QAEnv):
    def task(self, rng):
        xs = rng.sample("abcdefgh", 4)
        q = ["swap", *xs]
        w = [(i, j) for j in range(4) for i in range(j)]
        for i, j in rng.sample(w, 2):
            w = xs[:]
            xs[i], xs[j] = xs[j], xs[i]
            q.append(f"{i + 1}-{j + 1}")
        return q, xs, w
