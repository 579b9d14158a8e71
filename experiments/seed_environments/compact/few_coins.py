"""Pay a sum with the fewest coins of two values; the hint is how many of each.

family: few_coins
skill: Optimization
setting: compact
kind: single_turn
split: train
knobs: 12 -> 5 12 20
"""


class CoinsEnv(QAEnv):
    def task(self, rng):
        n, a = rng.randint(5, 9), rng.randint(1, 12)
        b = rng.randint(1, n - 1)
        return ("coins", n, 1, "pay", a * n + b), a + b, (a, b)
