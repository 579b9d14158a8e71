"""Sort numbers by reversing stretches, with few flips to spend.

family: flip_sort
skill: Optimization
setting: games
kind: multi_turn
split: train
size: small
"""

import collections
import itertools
import random
import re

SIZE = 6
FLIPS = list(itertools.combinations(range(SIZE), 2))


def flip(row, first, last):
    return row[:first] + row[first : last + 1][::-1] + row[last + 1 :]


def distances():
    """Fewest flips that sort each arrangement."""
    goal = tuple(range(1, SIZE + 1))
    steps, queue = {goal: 0}, collections.deque([goal])
    while queue:
        row = queue.popleft()
        for first, last in FLIPS:
            after = flip(row, first, last)
            if after not in steps:
                steps[after] = steps[row] + 1
                queue.append(after)
    return steps


class FlipSortEnv:
    def __init__(self, max_turns=6):
        self.max_turns = max_turns
        self.steps = distances()
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns, self.over = 0, False
        self.row = rng.choice([row for row, steps in self.steps.items() if 3 <= steps <= 4])
        return self._view(), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "The game is over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip().lower()
        match = re.fullmatch(r"flip ([1-6])-([1-6])", text)
        if not match or match.group(1) >= match.group(2):
            return self._end("Bad flip.")
        self.row = flip(self.row, int(match.group(1)) - 1, int(match.group(2)) - 1)
        if self.steps[self.row] == 0:
            self.over = True
            return "Sorted.", 1.0, True, False, {}
        return self._end("")

    def solution(self):
        first, last = self._best()
        return f"flip {first + 1}-{last + 1}"

    def hint(self):
        after = flip(self.row, *self._best())
        pairs = list(zip(self.row, self.row[1:])) + list(zip(self.row[1:], self.row))
        made = [p for p in zip(after, after[1:]) if p not in pairs and abs(p[0] - p[1]) == 1]
        told = f"; first bring {made[0][0]} beside {made[0][1]}" if made else ""
        return f"{self.steps[self.row]} flips suffice{told}."

    def close(self):
        pass

    def _best(self):
        return min(FLIPS, key=lambda ends: (self.steps[flip(self.row, *ends)], ends))

    def _end(self, text):
        if self.turns >= self.max_turns:
            self.over = True
            return f"{text} No turns left.".strip(), 0.0, False, True, {}
        return f"{text} {self._view()}".strip(), 0.0, False, False, {}

    def _view(self):
        left = self.max_turns - self.turns
        return f"Sort {' '.join(map(str, self.row))} in {left} turns. flip I-J"
