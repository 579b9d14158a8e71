"""Subtract the change of an untreated group from that of a treated one; the hint is both changes.

family: net_effect
skill: Causal Inference
setting: compact
kind: single_turn
split: held_out
knobs: 30 -> 9 30 60
"""


class NetEnv(QAEnv):
    def task(self, rng):
        a, b = rng.randint(1, 30), rng.randint(1, 30)
        c, n = rng.randint(1, 9), rng.randint(10, 29)
        return ("treated", a, a + c + n, "other", b, b + c), n, ("by", c + n, c)
