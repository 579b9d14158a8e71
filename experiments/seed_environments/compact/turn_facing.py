"""Turn right, left or back and tell each new facing; the hint lacks the last.

family: turn_facing
skill: Spatial Reasoning
setting: compact
kind: single_turn
split: train
knobs: 5 -> 4 5 6
"""


class TurnEnv(QAEnv):
    def task(self, rng):
        i = rng.randint(0, 3)
        q, w = ["turn", "nesw"[i]], []
        for _ in range(5):
            c = rng.choice("rbl")
            i += " rbl".index(c)
            q.append(c)
            w.append("nesw"[i % 4])
        return q, w, w[:-1]
