"""Put letters in order from shuffled comparisons; the hint is all but the last.

family: order_facts
skill: Logical Deduction
setting: compact
kind: single_turn
split: train
knobs: 4 -> 3 4 5
"""


class OrderEnv(QAEnv):
    def task(self, rng):
        xs = rng.sample("abcdefgh", 4)
        w = [a + ">" + b for a, b in zip(xs, xs[1:])]
        rng.shuffle(w)
        return ("order", w), xs, xs[:-1]
