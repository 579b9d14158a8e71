"""Find the largest sum of three neighbours; the hint is the three.

family: best_trio
skill: Optimization
setting: compact
kind: single_turn
split: train
knobs: 5 -> 4 5 6; 9 -> 6 9 20
"""


class TrioEnv(QAEnv):
    def task(self, rng):
        xs = [rng.randint(1, 9) for _ in range(5)]
        w = max((xs[i:i + 3] for i in range(len(xs) - 2)), key=sum)
        return ("trio", xs), sum(w), w
