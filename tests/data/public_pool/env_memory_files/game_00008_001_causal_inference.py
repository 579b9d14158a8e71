"""A long program."""

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
        return f"A shelf takes {a} pots, there are {b} shelves, {c} pots leave. How many stay?"

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


NOTE_0 = 'what a program of three hundred lines goes on with'
NOTE_1 = 'what a program of three hundred lines goes on with'
NOTE_2 = 'what a program of three hundred lines goes on with'
NOTE_3 = 'what a program of three hundred lines goes on with'
NOTE_4 = 'what a program of three hundred lines goes on with'
NOTE_5 = 'what a program of three hundred lines goes on with'
NOTE_6 = 'what a program of three hundred lines goes on with'
NOTE_7 = 'what a program of three hundred lines goes on with'
NOTE_8 = 'what a program of three hundred lines goes on with'
NOTE_9 = 'what a program of three hundred lines goes on with'
NOTE_10 = 'what a program of three hundred lines goes on with'
NOTE_11 = 'what a program of three hundred lines goes on with'
NOTE_12 = 'what a program of three hundred lines goes on with'
NOTE_13 = 'what a program of three hundred lines goes on with'
NOTE_14 = 'what a program of three hundred lines goes on with'
NOTE_15 = 'what a program of three hundred lines goes on with'
NOTE_16 = 'what a program of three hundred lines goes on with'
NOTE_17 = 'what a program of three hundred lines goes on with'
NOTE_18 = 'what a program of three hundred lines goes on with'
NOTE_19 = 'what a program of three hundred lines goes on with'
