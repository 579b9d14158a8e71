"""Take numbers away one after the other; the hint is what is left before the last.

family: minus_chain
skill: Mathematical Reasoning
setting: compact
kind: single_turn
split: train
knobs: 3 -> 2 3 4
"""


class MinusEnv(QAEnv):
    def task(self, rng):
        n = rng.randint(50, 99)
        xs = [rng.randint(1, 9) for _ in range(3)]
        w = [n - sum(xs[:i]) for i in range(1, len(xs))]
        return ("minus", n, xs), n - sum(xs), w
