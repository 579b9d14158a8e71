"""Apply two reactions to a row of letters; the hint lacks the last letter.

family: react
skill: Causal Inference
setting: compact
kind: single_turn
split: train
knobs: 5 -> 4 5 6
"""


class ReactEnv(QAEnv):
    def task(self, rng):
        xs = rng.sample("abcdefgh", 4)
        a, b, c, d = xs
        s = [rng.choice(xs) for _ in range(5)]
        w = [{a: b, c: d}.get(i, i) for i in s]
        return ("react", a + ">" + b, c + ">" + d, "on", s), w, w[:-1]
