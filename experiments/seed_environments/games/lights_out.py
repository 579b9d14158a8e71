"""Turn off every lamp of a 3x3 board whose presses toggle a cross.

family: lights_out
skill: Spatial Reasoning
setting: games
kind: multi_turn
split: held_out
size: small
"""

import random
import re

CROSS = {
    cell: [
        other for other in range(9) if abs(cell // 3 - other // 3) + abs(cell % 3 - other % 3) <= 1
    ]
    for cell in range(9)
}


class LightsOutEnv:
    def __init__(self, max_turns=8):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns, self.over = 0, False
        self.lamps = [0] * 9
        # On 3x3 every board has exactly one set of presses that clears it.
        self.needed = set()
        for cell in rng.sample(range(9), rng.randint(4, 6)):
            self._press(cell)
        return self._view(), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "Game over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip().lower()
        match = re.fullmatch(r"press ([1-3])([1-3])", text)
        if not match:
            return self._end("Bad command.")
        self._press((int(match.group(1)) - 1) * 3 + int(match.group(2)) - 1)
        if not any(self.lamps):
            self.over = True
            return "All dark.", 1.0, True, False, {}
        return self._end("")

    def solution(self):
        cell = min(self.needed, default=0)
        return f"press {cell // 3 + 1}{cell % 3 + 1}"

    def hint(self):
        rows = [sum(cell // 3 == row for cell in self.needed) for row in range(3)]
        return "Order does not matter. Presses needed by row, top first: " + "/".join(
            map(str, rows)
        )

    def close(self):
        pass

    def _press(self, cell):
        for other in CROSS[cell]:
            self.lamps[other] ^= 1
        self.needed ^= {cell}

    def _end(self, text):
        if self.turns >= self.max_turns:
            self.over = True
            return f"{text} No turns left.".strip(), 0.0, False, True, {}
        return f"{text} {self._view()}".strip(), 0.0, False, False, {}

    def _view(self):
        rows = "/".join("".join(map(str, self.lamps[i : i + 3])) for i in (0, 3, 6))
        return f"Lamps {rows}. press RC (row, column)"
