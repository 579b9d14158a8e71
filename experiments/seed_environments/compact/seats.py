"""Seat people who each name the seats they are not on; the hint is each one's seat.

family: seats
skill: Logical Deduction
setting: compact
kind: single_turn
split: held_out
knobs: 4 -> 3 4 5
"""


class SeatsEnv(QAEnv):
    def task(self, rng):
        xs = rng.sample("abcdefgh", 4)
        s = "12345"[:4]
        w = [(c, i) for c, i in zip(xs, s)]
        rng.shuffle(w)
        q = [c + "!" + s.replace(i, "") for c, i in w]
        return ("seats", q), xs, [c + i for c, i in w]
