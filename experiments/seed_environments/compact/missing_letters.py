"""Name the letters from a to h that are absent; the hint is the present ones in order.

family: missing_letters
skill: Logical Deduction
setting: compact
kind: single_turn
split: train
knobs: 6 -> 7 6 5
"""


class MissingEnv(QAEnv):
    def task(self, rng):
        xs = rng.sample("abcdefgh", 6)
        w = [c for c in "abcdefgh" if c not in xs]
        return ("missing", xs), w, sorted(xs)
