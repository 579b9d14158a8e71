"""Find the only order of five people that fits the clues.

family: line_order
skill: Logical Deduction
setting: games
kind: single_turn
split: held_out
"""

import itertools
import random
import re

NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana"]


class LineOrderEnv:
    def __init__(self, max_turns=3):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns, self.over = 0, False
        self.names = sorted(rng.sample(NAMES, 5))
        self.line = self.names[:]
        while self.line == self.names:
            rng.shuffle(self.line)
        orders = list(itertools.permutations(self.names))
        self.clues = []
        while len(orders) > 1:
            text, holds = self._clue(rng)
            left = [order for order in orders if holds(order)]
            if len(left) < len(orders):
                self.clues.append(text)
                orders = left
        return self._view("Who stands where?"), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "The game is over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip()
        if re.sub(r"[^A-Za-z]", "", text).upper() == self.solution():
            self.over = True
            return "That is the order.", 1.0, True, False, {}
        if self.turns >= self.max_turns:
            self.over = True
            return f"Wrong. The order was {' '.join(self.line)}.", 0.0, False, True, {}
        return self._view("That is not it."), 0.0, False, False, {}

    def solution(self):
        return "".join(name[0] for name in self.line)

    def hint(self):
        return f"{self.line[2]} stands in the middle. Place the others around, clue by clue."

    def close(self):
        pass

    def _clue(self, rng):
        """Draw a clue that is true of the line: its text, and a test of an order."""
        a, b = rng.sample(self.line, 2)
        gap = abs(self.line.index(a) - self.line.index(b))
        kind = rng.randrange(4)
        if kind == 0 and gap == 1:
            return f"{a} stands beside {b}.", lambda o: abs(o.index(a) - o.index(b)) == 1
        if kind == 1 and gap > 1:
            return f"{a} does not stand beside {b}.", lambda o: abs(o.index(a) - o.index(b)) > 1
        if kind == 2:
            end = self.line.index(a) in (0, 4)
            text = f"{a} stands at an end." if end else f"{a} does not stand at an end."
            return text, lambda o: (o.index(a) in (0, 4)) == end
        if self.line.index(a) > self.line.index(b):
            a, b = b, a
        return f"{a} is somewhere left of {b}.", lambda o: o.index(a) < o.index(b)

    def _view(self, last):
        return (
            f"Five people stand in a line: {', '.join(self.names)}.\n"
            + " ".join(self.clues)
            + f"\n{last} Try {self.turns + 1} of {self.max_turns}. Answer with the five first "
            "letters from left to right, in \\boxed{...}."
        )
