"""Continue letters and numbers that climb together; the hint is the numbers' step.

family: ladder
skill: Pattern Recognition
setting: compact
kind: single_turn
split: train
knobs: 9 -> 5 9 20
"""


class LadderEnv(QAEnv):
    def task(self, rng):
        s = "abcdefghijklmnop"
        i, a, b = rng.randrange(10), rng.randint(1, 9), rng.randint(1, 9)
        w = [(s[i + j], a + b * j) for j in range(4)]
        return ("ladder", w[:-1]), w[-1], ("add", b)
