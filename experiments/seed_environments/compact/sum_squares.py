"""Add the squares of a list; the hint is the squares.

family: sum_squares
skill: Mathematical Reasoning
setting: compact
kind: single_turn
split: held_out
knobs: 3 -> 2 3 4; 9 -> 6 9 12
"""


class SquaresEnv(QAEnv):
    def task(self, rng):
        xs = [rng.randint(1, 9) for _ in range(3)]
        w = [a * a for a in xs]
        return ("squares", xs), sum(w), w
