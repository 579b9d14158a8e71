"""Find the dearest two items within a budget; the hint is the two.

family: budget_pair
skill: Optimization
setting: compact
kind: single_turn
split: train
knobs: 4 -> 3 4 5; 20 -> 12 20 40
"""


class BudgetEnv(QAEnv):
    def task(self, rng):
        xs = rng.sample(range(1, 20), 4)
        n = sum(sorted(xs)[:2]) + rng.randint(0, 9)
        s, a, b = max((a + b, a, b) for a in xs for b in xs if a < b and a + b <= n)
        return ("budget", n, "of", xs), s, (a, b)
