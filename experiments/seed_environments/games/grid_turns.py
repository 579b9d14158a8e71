"""Turn and mirror a grid of letters in the mind.

family: grid_turns
skill: Spatial Reasoning
setting: games
kind: single_turn
split: held_out
"""

import random
import re

MOVES = {
    "turn it a quarter clockwise": lambda g: ["".join(row) for row in zip(*g[::-1])],
    "turn it a quarter counter-clockwise": lambda g: ["".join(row) for row in zip(*g)][::-1],
    "mirror it left to right": lambda g: [row[::-1] for row in g],
    "mirror it top to bottom": lambda g: g[::-1],
    "move the top row to the bottom": lambda g: g[1:] + g[:1],
}


class GridTurnsEnv:
    def __init__(self, max_turns=3):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns, self.over = 0, False
        letters = rng.sample("abcdefghkmnprstuvwxyz", 9)
        self.grid = ["".join(letters[i : i + 3]) for i in (0, 3, 6)]
        self.result = self.grid
        while self.result == self.grid:
            self.moves = [rng.choice(list(MOVES)) for _ in range(3)]
            self.result = self.grid
            for move in self.moves:
                self.result = MOVES[move](self.result)
        return self._view("What does it look like then?"), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "The game is over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip().lower()
        if re.split(r"[/\s,]+", text) == self.result:
            self.over = True
            return "That is right.", 1.0, True, False, {}
        if self.turns >= self.max_turns:
            self.over = True
            return f"Wrong. It was {self.solution()}.", 0.0, False, True, {}
        return self._view("That is not it."), 0.0, False, False, {}

    def solution(self):
        return "/".join(self.result)

    def hint(self):
        first = "/".join(MOVES[self.moves[0]](self.grid))
        told = f"After the first move it is {first}. " if first != self.solution() else ""
        return f"{told}At the end the top left letter is {self.result[0][0]}."

    def close(self):
        pass

    def _view(self, last):
        return (
            f"A grid of letters, rows from the top: {' '.join(self.grid)}.\nFirst "
            + ", then ".join(self.moves)
            + f".\n{last} Try {self.turns + 1} of {self.max_turns}. Answer with the three rows as "
            "\\boxed{row/row/row}."
        )
