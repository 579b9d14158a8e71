"""Tell which comparisons are true; the hint lacks the last.

family: check_claims
skill: Logical Deduction
setting: compact
kind: single_turn
split: train
knobs: 4 -> 3 4 5
"""


class ClaimsEnv(QAEnv):
    def task(self, rng):
        q, w = ["claims"], []
        for _ in range(4):
            a, b = rng.sample(range(10), 2)
            c = rng.choice("<>")
            q.append(f"{a}{c}{b}")
            w.append("t" if (a < b) == (c == "<") else "f")
        return q, w, w[:-1]
