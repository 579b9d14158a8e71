"""Tell in order what falls when one domino is pushed; the hint lacks the last.

family: dominoes
skill: Causal Inference
setting: compact
kind: single_turn
split: train
knobs: 5 -> 4 5 6
"""


class PushEnv(QAEnv):
    def task(self, rng):
        xs = rng.sample("abcdefgh", 5)
        i = rng.randint(0, len(xs) - 3)
        w = [a + ">" + b for a, b in zip(xs, xs[1:])]
        rng.shuffle(w)
        return ("push", xs[i], w), xs[i + 1:], xs[i + 1:-1]
