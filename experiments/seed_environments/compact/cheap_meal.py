"""Buy one item of each of two lists for the least sum; the hint is the two prices.

family: cheap_meal
skill: Optimization
setting: compact
kind: single_turn
split: train
knobs: 3 -> 2 3 4; 20 -> 9 20 40
"""


class MealEnv(QAEnv):
    def task(self, rng):
        a, b = [[rng.randint(1, 20) for _ in range(3)] for _ in range(2)]
        w = [min(a), min(b)]
        return ("cheapest", a, "and", b), sum(w), w
