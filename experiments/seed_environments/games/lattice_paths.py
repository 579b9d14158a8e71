"""Count the ways through a grid with blocked cells.

family: lattice_paths
skill: Mathematical Reasoning
setting: games
kind: single_turn
split: train
"""

import random
import re


class LatticePathsEnv:
    def __init__(self, max_turns=3):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns, self.over = 0, False
        while True:
            self.height, self.width = rng.randint(5, 6), rng.randint(5, 7)
            cells = [(r, c) for r in range(self.height) for c in range(self.width)]
            self.blocked = set(rng.sample(cells[1:-1], rng.randint(2, 5)))
            self.ways = self._count()
            self.answer = self.ways[self.height - 1, self.width - 1]
            if 40 <= self.answer <= 300:
                return self._view("How many ways are there?"), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "The game is over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip()
        if text == str(self.answer):
            self.over = True
            return "That is right.", 1.0, True, False, {}
        if self.turns >= self.max_turns:
            self.over = True
            return f"Wrong. The number was {self.answer}.", 0.0, False, True, {}
        told = "Answer with a number."
        if re.fullmatch(r"[0-9]{1,6}", text):
            told = "Too few." if int(text) < self.answer else "Too many."
        return self._view(told), 0.0, False, False, {}

    def solution(self):
        return str(self.answer)

    def hint(self):
        above = self.ways[self.height - 2, self.width - 1]
        told = "all of them" if above == self.answer else above
        return (
            "The ways into a cell are those into the cell above plus those into the cell on its "
            f"left. The cell above the last one has {told}."
        )

    def close(self):
        pass

    def _count(self):
        ways = {}
        for r in range(self.height):
            for c in range(self.width):
                came = ways.get((r - 1, c), 0) + ways.get((r, c - 1), 0)
                ways[r, c] = 0 if (r, c) in self.blocked else came or int((r, c) == (0, 0))
        return ways

    def _view(self, last):
        rows = [
            "".join("#" if (r, c) in self.blocked else "." for c in range(self.width))
            for r in range(self.height)
        ]
        return (
            "Walk from the top left to the bottom right cell, one cell right or down at a time, "
            "never on #.\n" + "\n".join(rows) + f"\n{last} Try {self.turns + 1} of "
            f"{self.max_turns}. Answer with \\boxed{{N}}."
        )
