"""Set a cause and work out the effect of its effect; the hint is the steps before.

family: do_rule
skill: Causal Inference
setting: compact
kind: single_turn
split: train
knobs: 9 -> 5 9 15
"""


class DoEnv(QAEnv):
    def task(self, rng):
        x, a, b, c = [rng.randint(2, 9) for _ in range(4)]
        y = a * x + b
        return f"do x={x} y={a}x+{b} z=y+{c}", y + c, (a * x, y)
