"""Name the letters that stand in both lists; the hint is the others of the first list.

family: in_both
skill: Logical Deduction
setting: compact
kind: single_turn
split: train
knobs: 6 -> 5 6 7
"""


class BothEnv(QAEnv):
    def task(self, rng):
        xs = rng.sample("abcdefgh", 6)
        a, b = xs[:4], xs[2:]
        rng.shuffle(a)
        rng.shuffle(b)
        w = [c for c in a if c not in b]
        return ("both", a, "and", b), [c for c in a if c in b], ("not", w)
