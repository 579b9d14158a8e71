"""Choose the most valuable set of things that a bag can carry.

family: best_packing
skill: Optimization
setting: games
kind: single_turn
split: held_out
"""

import itertools
import random
import re


class BestPackingEnv:
    def __init__(self, max_turns=3):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns, self.over = 0, False
        while True:
            self.things = {name: (rng.randint(2, 12), rng.randint(3, 20)) for name in "ABCDEFG"}
            self.limit = rng.randint(16, 26)
            ranked = sorted(self._sets(), key=self._value, reverse=True)
            self.best = ranked[0]
            unique = self._value(ranked[0]) > self._value(ranked[1])
            if unique and len(self.best) >= 3 and self.best != self._greedy():
                return self._view("What do you pack?"), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "The game is over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip()
        chosen = "".join(sorted(set(re.sub(r"[\s,]+", "", text).upper())))
        if chosen == self.best:
            self.over = True
            return "Nothing better fits.", 1.0, True, False, {}
        told = "That is not a set of the things."
        if chosen and set(chosen) <= set(self.things):
            told = f"That weighs {self._weight(chosen)} and is worth {self._value(chosen)}: "
            told += "too heavy." if self._weight(chosen) > self.limit else "not the best."
        if self.turns >= self.max_turns:
            self.over = True
            return f"{told} The best was {self.best}.", 0.0, False, True, {}
        return self._view(told), 0.0, False, False, {}

    def solution(self):
        return self.best

    def hint(self):
        out = min(set(self.things) - set(self.best))
        return (
            f"The best set holds {len(self.best)} things and leaves {out} out. Taking the best "
            "value for its weight first is not enough."
        )

    def close(self):
        pass

    def _weight(self, names):
        return sum(self.things[name][0] for name in names)

    def _value(self, names):
        return sum(self.things[name][1] for name in names)

    def _sets(self):
        for count in range(1, 8):
            for names in itertools.combinations(self.things, count):
                if self._weight(names) <= self.limit:
                    yield "".join(names)

    def _greedy(self):
        names = ""
        for name in sorted(self.things, key=lambda n: -self.things[n][1] / self.things[n][0]):
            if self._weight(names + name) <= self.limit:
                names += name
        return "".join(sorted(names))

    def _view(self, last):
        things = ", ".join(f"{n} weighs {w} worth {v}" for n, (w, v) in self.things.items())
        return (
            f"A bag carries at most {self.limit}. Things: {things}.\n"
            f"Pack the set of highest worth. {last} Try {self.turns + 1} of {self.max_turns}. "
            "Answer with the letters in \\boxed{...}."
        )
