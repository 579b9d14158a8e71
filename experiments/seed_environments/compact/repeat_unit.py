"""Continue letters that repeat while their numbers count up; the hint is the repeating unit.

family: repeat_unit
skill: Pattern Recognition
setting: compact
kind: single_turn
split: held_out
knobs: 3 -> 2 3 4
"""


class RepeatEnv(QAEnv):
    def task(self, rng):
        xs = rng.sample("abcdefgh", 3)
        a, n = rng.randint(1, 9), rng.randint(5, 6)
        w = [(xs[i % 3], a + i) for i in range(n)]
        return ("repeat", w[:-1]), w[-1], ("unit", xs)
