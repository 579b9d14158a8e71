"""Find the largest sum of two numbers of a list; the hint is the two.

family: best_pair
skill: Optimization
setting: compact
kind: single_turn
split: train
knobs: 4 -> 3 4 5; 20 -> 9 20 50
"""


class PairEnv(QAEnv):
    def task(self, rng):
        xs = [rng.randint(1, 20) for _ in range(4)]
        w = sorted(xs)[-2:]
        return ("pair", xs), sum(w), w
