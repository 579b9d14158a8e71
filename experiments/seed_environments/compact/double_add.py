"""Double a number and add to it, several times; the hint is the values before the last.

family: double_add
skill: Mathematical Reasoning
setting: compact
kind: single_turn
split: train
knobs: 3 -> 2 3 4
"""


class DoubleEnv(QAEnv):
    def task(self, rng):
        a, b = rng.randint(1, 30), rng.randint(1, 9)
        w = [a]
        for _ in range(3):
            w.append(2 * w[-1] + b)
        return ("double", a, "add", b, "times", len(w) - 1), w[-1], w[1:-1]
