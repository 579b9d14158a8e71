"""Find the least total to raise all heights to one level; the hint is each one's part.

family: level_up
skill: Optimization
setting: compact
kind: single_turn
split: held_out
knobs: 4 -> 3 4 5; 20 -> 10 20 40
"""


class LevelEnv(QAEnv):
    def task(self, rng):
        xs = rng.sample(range(1, 20), 4)
        w = [max(xs) - a for a in xs]
        return ("level", xs), sum(w), w
