"""Buy once and sell later for the largest profit; the hint is the two prices.

family: best_sale
skill: Optimization
setting: compact
kind: single_turn
split: train
knobs: 4 -> 3 4 5
"""


class SaleEnv(QAEnv):
    def task(self, rng):
        xs = [rng.randint(20, 60) for _ in range(4)]
        s, a, b = max((b - a, a, b) for i, a in enumerate(xs) for b in xs[i:])
        return ("profit", xs), s, ("buy", a, "sell", b)
