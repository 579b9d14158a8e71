"""Write each run of equal letters as letter and count; the hint lacks the last run.

family: run_lengths
skill: Pattern Recognition
setting: compact
kind: single_turn
split: train
knobs: 3 -> 2 3 4
"""


class RunsEnv(QAEnv):
    def task(self, rng):
        xs = rng.sample("abcdefgh", 3)
        ys = [rng.randint(1, 4) for _ in xs]
        w = [f"{c}{n}" for c, n in zip(xs, ys)]
        return ("runs", [[c] * n for c, n in zip(xs, ys)]), w, w[:-1]
