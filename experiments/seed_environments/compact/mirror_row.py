"""Mirror a row of letters; the hint lacks the last letter.

family: mirror_row
skill: Spatial Reasoning
setting: compact
kind: single_turn
split: train
knobs: 5 -> 4 5 6
"""


class MirrorRowEnv(QAEnv):
    def task(self, rng):
        xs = rng.sample("abcdefgh", 5)
        w = xs[::-1]
        return ("mirror", xs), w, w[:-1]
