"""Count the blocks between two corners of a street grid; the hint is the two legs.

family: city_distance
skill: Spatial Reasoning
setting: compact
kind: single_turn
split: train
knobs: 9 -> 5 9 20
"""


class BlocksEnv(QAEnv):
    def task(self, rng):
        x, y, a, b = [rng.randint(1, 9) for _ in range(4)]
        return ("blocks", x, y + b, "to", x + a, y), a + b, (a, b)
