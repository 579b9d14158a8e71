"""Tell the total had one part not happened; the hint is the whole total.

family: without
skill: Causal Inference
setting: compact
kind: single_turn
split: held_out
knobs: 5 -> 4 5 6
"""


class WithoutEnv(QAEnv):
    def task(self, rng):
        xs = [rng.randint(1, 9) for _ in range(5)]
        a = rng.choice(xs)
        return ("without", a, "in", xs), sum(xs) - a, ("all", sum(xs))
