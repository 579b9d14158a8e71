"""Shift letters along the alphabet; the hint lacks the last letter.

family: shift_letters
skill: Pattern Recognition
setting: compact
kind: single_turn
split: held_out
knobs: 3 -> 2 3 4
"""


class ShiftEnv(QAEnv):
    def task(self, rng):
        s = "abcdefghijklmnop"
        n = rng.randint(1, 5)
        xs = rng.sample(range(10), 3)
        w = [s[i + n] for i in xs]
        return ("shift", n, [s[i] for i in xs]), w, w[:-1]
