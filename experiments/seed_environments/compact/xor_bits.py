"""Tell place by place whether exactly one of two bits is set; the hint lacks the last place.

family: xor_bits
skill: Logical Deduction
setting: compact
kind: single_turn
split: held_out
knobs: 5 -> 4 5 6
"""


class XorEnv(QAEnv):
    def task(self, rng):
        a, b = [[rng.randint(0, 1) for _ in range(5)] for _ in range(2)]
        w = [i ^ j for i, j in zip(a, b)]
        return ("xor", a, "and", b), w, w[:-1]
