"""Tell what still happens when one event of a chain is blocked; the hint is what stops.

family: block_link
skill: Causal Inference
setting: compact
kind: single_turn
split: train
knobs: 5 -> 4 5 6
"""


class BlockEnv(QAEnv):
    def task(self, rng):
        xs = rng.sample("abcdefgh", 5)
        i = rng.randint(1, len(xs) - 1)
        w = [a + ">" + b for a, b in zip(xs, xs[1:])]
        rng.shuffle(w)
        return ("block", xs[i], w), xs[:i], ("stop", xs[i:])
