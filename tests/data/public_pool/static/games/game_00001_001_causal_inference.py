"""Warehouse game 1."""

import random
import re


class WarehouseEnv:
    def __init__(self, max_turns=3):
        self.max_turns = max_turns
        self.turns = 0
        self.goods = (0, 0, 0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns = 0
        self.goods = tuple(rng.randint(11, 99) for _ in range(3))
        return self._task(), {}

    def _task(self):
        a, b, c = self.goods
        return f"A shelf takes {a} barrels, there are {b} shelves, {c} barrels leave. How many stay?"

    def _answer(self):
        a, b, c = self.goods
        return str(a * b - c)

    def step(self, action):
        self.turns += 1
        found = re.findall(r"\\boxed\{([^{}]*)\}", action)
        if found and found[-1].strip() == self._answer():
            return "Right.", 1.0, True, False, {}
        over = self.turns >= self.max_turns
        return f"Not right. {self._task()} Use \\boxed{{}}.", 0.0, False, over, {}

    def solution(self):
        return self._answer()
