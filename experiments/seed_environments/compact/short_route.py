"""Find the length of the shortest of some routes; the hint is its two legs.

family: short_route
skill: Optimization
setting: compact
kind: single_turn
split: train
knobs: 3 -> 2 3 4; 20 -> 9 20 40
"""


class RouteEnv(QAEnv):
    def task(self, rng):
        xs = [(rng.randint(1, 20), rng.randint(1, 20)) for _ in range(3)]
        w = min(xs, key=sum)
        return ("shortest", [f"{a}+{b}" for a, b in xs]), sum(w), w
