"""Continue a sequence in which each number is the sum of the two before; the hint is those.

family: fibonacci
skill: Pattern Recognition
setting: compact
kind: single_turn
split: train
knobs: 20 -> 9 20 50
"""


class FibEnv(QAEnv):
    def task(self, rng):
        xs = [rng.randint(1, 20), rng.randint(1, 20)]
        for _ in range(3):
            xs.append(xs[-2] + xs[-1])
        return ("fib", xs[:-1]), xs[-1], ("add", xs[-3:-1])
