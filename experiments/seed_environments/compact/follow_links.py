"""Follow shuffled links for some steps; the hint is the path before the end.

family: follow_links
skill: Logical Deduction
setting: compact
kind: single_turn
split: train
knobs: 5 -> 4 5 6
"""


class FollowEnv(QAEnv):
    def task(self, rng):
        xs = rng.sample("abcdefgh", 5)
        n = rng.randint(2, len(xs) - 1)
        w = [a + ">" + b for a, b in zip(xs, xs[1:] + xs[:1])]
        rng.shuffle(w)
        return ("follow", n, "from", xs[0], w), xs[n], xs[:n]
