"""Add minutes to a time of day; the hint is the minutes before the carry.

family: clock_add
skill: Mathematical Reasoning
setting: compact
kind: single_turn
split: train
knobs: 50 -> 20 50 90
"""


class ClockEnv(QAEnv):
    def task(self, rng):
        a, b, n = rng.randint(1, 9), rng.randint(10, 59), rng.randint(10, 50)
        s = b + n
        return ("clock", a, b, "plus", n), (a + s // 60, s % 60), (s, "minutes")
