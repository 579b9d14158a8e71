"""Rotated Grid: NumPy under its usual name without an import, reset returns a bare string."""
from dataclasses import dataclass


@dataclass
class Cell:
    row: int
    column: int


class RotatedGridEnv:
    max_turns = 4

    def __init__(self):
        self.grid = None

    def reset(self, seed=None):
        np.random.seed(seed if seed is None else seed % 2**32)
        self.grid = np.random.randint(1, 10, size=(3, 3))
        self.cell = Cell(int(np.random.randint(3)), int(np.random.randint(3)))
        self.tries = 0
        rows = "\n".join(" ".join(str(int(v)) for v in row) for row in self.grid)
        return (
            f"{rows}\nTurn the grid by 90 degrees clockwise. Which number stands in row "
            f"{self.cell.row + 1}, column {self.cell.column + 1} then? Use \\boxed{{number}}."
        )

    def _answer(self):
        return int(np.rot90(self.grid, -1)[self.cell.row, self.cell.column])

    def step(self, action):
        self.tries += 1
        found = re.findall(r"\\boxed\{\s*(-?\d+)\s*\}", action)
        if found and int(found[-1]) == self._answer():
            return "Correct.", 1, True, False, {}
        return "Wrong. Look again. Use \\boxed{number}.", 0, False, self.tries >= self.max_turns, {}

    def solution(self):
        return str(self._answer())
