"""Measure a target amount with three jugs.

family: water_jugs
skill: Mathematical Reasoning
setting: games
kind: multi_turn
split: train
"""

import collections
import random
import re


class WaterJugsEnv:
    def __init__(self, max_turns=10):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns, self.over = 0, False
        while True:
            self.sizes = sorted(rng.sample(range(3, 14), 3))
            self.held = (0, 0, 0)
            self.target = rng.randint(1, self.sizes[-1] - 1)
            plan = self._plan()
            if plan and 5 <= len(plan) <= 7:
                return self._view("All jugs are empty."), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "The game is over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip().lower()
        if text not in self._moves(self.held):
            return self._end("No such move.")
        held = self._moves(self.held)[text]
        told = "Nothing changed." if held == self.held else "Done."
        self.held = held
        if self.target in held:
            self.over = True
            return f"One jug holds {self.target} litres. Well done.", 1.0, True, False, {}
        return self._end(told)

    def solution(self):
        plan = self._plan()
        return plan[0] if plan else "fill a"

    def hint(self):
        plan = self._plan()
        pours = sum(move.startswith("pour") for move in plan)
        return (
            f"{len(plan)} moves are enough, {pours} of them between jugs. Think of which sums and "
            "differences of the jug sizes give the target."
        )

    def close(self):
        pass

    def _moves(self, held):
        found = {}
        for i, name in enumerate("abc"):
            found[f"fill {name}"] = held[:i] + (self.sizes[i],) + held[i + 1 :]
            found[f"empty {name}"] = held[:i] + (0,) + held[i + 1 :]
            for j, other in enumerate("abc"):
                if i != j:
                    amount = min(held[i], self.sizes[j] - held[j])
                    after = list(held)
                    after[i] -= amount
                    after[j] += amount
                    found[f"pour {name} {other}"] = tuple(after)
        return found

    def _plan(self):
        """Shortest list of moves from here to the target, None if there is none."""
        queue, seen = collections.deque([(self.held, [])]), {self.held}
        while queue:
            held, path = queue.popleft()
            if self.target in held:
                return path
            for move, after in self._moves(held).items():
                if after not in seen:
                    seen.add(after)
                    queue.append((after, path + [move]))
        return None

    def _end(self, text):
        if self.turns >= self.max_turns:
            self.over = True
            return f"{text} No turns left.", 0.0, False, True, {}
        return self._view(text), 0.0, False, False, {}

    def _view(self, last):
        jugs = ", ".join(f"{n} holds {h} of {s}" for n, h, s in zip("abc", self.held, self.sizes))
        return (
            f"Get exactly {self.target} litres into any jug. Now {jugs}.\n{last} "
            f"Turn {self.turns + 1} of {self.max_turns}.\nActions: fill X, empty X, pour X Y "
            "(until X is empty or Y full). Act with \\boxed{...}."
        )
