"""Walk on a grid by compass letters; the hint is the squares before the last.

family: walk_grid
skill: Spatial Reasoning
setting: compact
kind: single_turn
split: held_out
knobs: 3 -> 2 3 4
"""


class WalkEnv(QAEnv):
    def task(self, rng):
        x, y = rng.randint(4, 7), rng.randint(4, 7)
        s = rng.choices(rng.choice(["ne", "nw", "se", "sw"]), k=3)
        q, w = ("walk", x, y, s), []
        for c in s:
            w.append(f"{x}{y}")
            x += (c == "e") - (c == "w")
            y += (c == "n") - (c == "s")
        return q, (x, y), w
