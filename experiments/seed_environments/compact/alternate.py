"""Continue a sequence with two alternating steps; the hint is the steps.

family: alternate
skill: Pattern Recognition
setting: compact
kind: single_turn
split: train
knobs: 9 -> 5 9 20
"""


class AlternateEnv(QAEnv):
    def task(self, rng):
        a, b, c = [rng.randint(1, 9) for _ in range(3)]
        w = [b, c, b, c]
        xs = [a + sum(w[:i]) for i in range(5)]
        return ("alternate", xs[:-1]), xs[-1], ("add", w)
