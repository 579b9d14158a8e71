"""Slide the tiles of a 2x3 board into order.

family: tile_slide
skill: Spatial Reasoning
setting: games
kind: multi_turn
split: train
size: small
"""

import collections
import random
import re

GOAL = "12345_"


def slides(board):
    """Map each tile that can slide to the board after it."""
    blank, found = board.index("_"), {}
    for place in range(6):
        if abs(place // 3 - blank // 3) + abs(place % 3 - blank % 3) == 1:
            tiles = list(board)
            tiles[blank], tiles[place] = tiles[place], "_"
            found[board[place]] = "".join(tiles)
    return found


def distances():
    """Fewest slides to the goal from every board that can reach it."""
    steps, queue = {GOAL: 0}, collections.deque([GOAL])
    while queue:
        board = queue.popleft()
        for after in slides(board).values():
            if after not in steps:
                steps[after] = steps[board] + 1
                queue.append(after)
    return steps


class TileSlideEnv:
    def __init__(self, max_turns=14):
        self.max_turns = max_turns
        self.steps = distances()
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns, self.over = 0, False
        self.board = rng.choice([b for b, steps in self.steps.items() if 8 <= steps <= 10])
        return self._view(), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "The game is over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip().lower()
        match = re.fullmatch(r"slide ([1-5])", text)
        if not match or match.group(1) not in slides(self.board):
            return self._end("Cannot.")
        self.board = slides(self.board)[match.group(1)]
        if self.board == GOAL:
            self.over = True
            return "In order.", 1.0, True, False, {}
        return self._end("")

    def solution(self):
        return f"slide {self._best(self.board)}"

    def hint(self):
        board = self.board
        for _ in range(3):
            board = slides(board)[self._best(board)]
        return f"{self.steps[self.board]} slides suffice; after three: {board[:3]}/{board[3:]}."

    def close(self):
        pass

    def _best(self, board):
        options = slides(board)
        return min(options, key=lambda tile: (self.steps[options[tile]], tile))

    def _end(self, text):
        if self.turns >= self.max_turns:
            self.over = True
            return f"{text} No turns left.".strip(), 0.0, False, True, {}
        return f"{text} {self._view()}".strip(), 0.0, False, False, {}

    def _view(self):
        return f"Board {self.board[:3]}/{self.board[3:]}, goal 123/45_. slide N"
