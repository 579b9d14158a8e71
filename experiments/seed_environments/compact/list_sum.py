"""Add the numbers of a list; the hint is the running total before the last.

family: list_sum
skill: Mathematical Reasoning
setting: compact
kind: single_turn
split: train
knobs: 4 -> 3 4 5; 9 -> 6 9 15
"""


class SumEnv(QAEnv):
    def task(self, rng):
        xs = [rng.randint(1, 9) for _ in range(4)]
        w = [sum(xs[:i]) for i in range(2, len(xs))]
        return ("sum", xs), sum(xs), w
