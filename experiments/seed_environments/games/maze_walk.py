"""Walk through an unseen maze to a treasure.

family: maze_walk
skill: Spatial Reasoning
setting: games
kind: hidden_state
split: train
"""

import collections
import random
import re

SIDE = 5
STEPS = {"n": (-1, 0), "e": (0, 1), "s": (1, 0), "w": (0, -1)}
NAMES = {"n": "north", "e": "east", "s": "south", "w": "west"}


class MazeWalkEnv:
    def __init__(self, max_turns=18):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        while True:
            self.turns, self.over = 0, False
            self.doors = self._carve(rng)
            cells = [(r, c) for r in range(SIDE) for c in range(SIDE)]
            self.cell, self.goal = rng.sample(cells, 2)
            self.seen = {}
            if 9 <= self._length() <= 13:
                return self._view("You enter."), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "The game is over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip().lower()
        match = re.fullmatch(r"go ([nesw])", text)
        if not match:
            return self._end("That is not a way to go.")
        way = match.group(1)
        if way not in self.doors[self.cell]:
            return self._end("There is a wall.")
        self.cell = self._after(self.cell, way)
        if self.cell == self.goal:
            self.over = True
            return "You found the treasure.", 1.0, True, False, {}
        return self._end("You walked on.")

    def solution(self):
        return f"go {(self._path(self.cell, self.seen) or 'n')[0]}"

    def hint(self):
        path, cell = self._path(self.cell, self.doors), self.cell
        for way in path[: len(path) // 2]:
            cell = self._after(cell, way)
        return (
            f"The shortest way has {len(path)} steps and passes row {cell[0] + 1}, column "
            f"{cell[1] + 1} half-way. Remember the walls you have seen."
        )

    def close(self):
        pass

    def _after(self, cell, way):
        return cell[0] + STEPS[way][0], cell[1] + STEPS[way][1]

    def _inside(self, cell):
        return 0 <= cell[0] < SIDE and 0 <= cell[1] < SIDE

    def _carve(self, rng):
        """A spanning tree of passages and two more; cell -> its open ways."""
        doors = {(r, c): "" for r in range(SIDE) for c in range(SIDE)}
        trail, visited = [(0, 0)], {(0, 0)}
        walls = []
        while trail:
            cell = trail[-1]
            ways = [w for w in STEPS if self._inside(self._after(cell, w))]
            fresh = [w for w in ways if self._after(cell, w) not in visited]
            if not fresh:
                walls += [(cell, w) for w in ways if w not in doors[cell]]
                trail.pop()
                continue
            way = rng.choice(fresh)
            self._open(doors, cell, way)
            trail.append(self._after(cell, way))
            visited.add(trail[-1])
        for cell, way in rng.sample(walls, 2):
            if way not in doors[cell]:
                self._open(doors, cell, way)
        return doors

    def _open(self, doors, cell, way):
        doors[cell] += way
        doors[self._after(cell, way)] += "nesw"[("nesw".index(way) + 2) % 4]

    def _path(self, start, doors):
        """Shortest way to the goal where cells not in doors are taken to be open."""
        queue, seen = collections.deque([(start, "")]), {start}
        while queue:
            cell, path = queue.popleft()
            if cell == self.goal:
                return path
            for way in doors.get(cell, "nesw"):
                after = self._after(cell, way)
                if self._inside(after) and after not in seen:
                    seen.add(after)
                    queue.append((after, path + way))
        return "n"

    def _length(self):
        """Steps of a walker who only knows the cells it has stood on."""
        cell, seen, count = self.cell, {}, 0
        while cell != self.goal:
            seen[cell] = self.doors[cell]
            cell = self._after(cell, self._path(cell, seen)[0])
            count += 1
        return count

    def _end(self, text):
        if self.turns >= self.max_turns:
            self.over = True
            return f"{text} No turns left.", 0.0, False, True, {}
        return self._view(text), 0.0, False, False, {}

    def _view(self, last):
        self.seen[self.cell] = self.doors[self.cell]
        ways = ", ".join(NAMES[way] for way in "nesw" if way in self.doors[self.cell])
        return (
            f"A maze of {SIDE} rows and {SIDE} columns; row 1 is in the north. The treasure is in "
            f"row {self.goal[0] + 1}, column {self.goal[1] + 1}.\nYou stand in row "
            f"{self.cell[0] + 1}, column {self.cell[1] + 1}. Open ways: {ways}.\n{last} "
            f"Turn {self.turns + 1} of {self.max_turns}.\n"
            "Act with \\boxed{go D}, D being the first letter of a direction."
        )
