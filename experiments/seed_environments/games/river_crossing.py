"""Row passengers over a river without leaving enemies alone.

family: river_crossing
skill: Logical Deduction
setting: games
kind: multi_turn
split: train
"""

import collections
import itertools
import random
import re

NAMES = ["fox", "goat", "goose", "hen", "cat", "mouse", "dog", "rabbit", "owl", "frog"]


class RiverCrossingEnv:
    def __init__(self, max_turns=12):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns, self.over = 0, False
        while True:
            count = rng.randint(3, 5)
            self.seats = 1 if count == 3 else rng.randint(1, 2)
            self.names = sorted(rng.sample(NAMES, count))
            pairs = list(itertools.combinations(self.names, 2))
            self.enemies = sorted(rng.sample(pairs, rng.randint(2, count)))
            self.here, self.boat_here = frozenset(self.names), True
            plan = self._plan()
            if plan and 7 <= len(plan) <= 9:
                return self._view("All are on the near bank."), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "The game is over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip().lower()
        words = re.sub(r"[,\s]+", " ", text).split(" ")
        taken = [] if words[1:] == ["alone"] else words[1:]
        bank = self.here if self.boat_here else frozenset(self.names) - self.here
        if words[0] != "row" or len(words) < 2 or not set(taken) <= bank:
            return self._end("That is not a crossing with passengers of your bank.")
        if len(set(taken)) > self.seats:
            return self._end("The boat is too small for that.")
        self._cross(taken)
        left = self.here if not self.boat_here else frozenset(self.names) - self.here
        if self._fight(left):
            self.over = True
            return "Enemies were left alone and fought. You lost.", 0.0, True, False, {}
        if not self.here and not self.boat_here:
            self.over = True
            return "Everyone is across. You won.", 1.0, True, False, {}
        return self._end("You crossed.")

    def solution(self):
        plan = self._plan()
        return plan[0] if plan else "row alone"

    def hint(self):
        plan = self._plan()
        weight = {name: sum(name in pair for pair in self.enemies) for name in self.names}
        most = max(self.names, key=lambda name: (weight[name], name))
        return (
            f"{len(plan)} crossings are enough. The {most} has the most enemies, so plan around "
            "it; bringing a passenger back is sometimes needed."
        )

    def close(self):
        pass

    def _cross(self, taken):
        self.here = self.here - set(taken) if self.boat_here else self.here | set(taken)
        self.boat_here = not self.boat_here

    def _fight(self, bank):
        return any(a in bank and b in bank for a, b in self.enemies)

    def _plan(self):
        """Shortest list of crossings from here, None if there is none."""
        everyone, start = frozenset(self.names), (self.here, self.boat_here)
        queue, seen = collections.deque([(start, [])]), {start}
        while queue:
            (here, boat_here), path = queue.popleft()
            if not here and not boat_here:
                return path
            bank = sorted(here if boat_here else everyone - here)
            for count in range(self.seats + 1):
                for taken in itertools.combinations(bank, count):
                    after = here - set(taken) if boat_here else here | set(taken)
                    state = (after, not boat_here)
                    if state in seen or self._fight(after if boat_here else everyone - after):
                        continue
                    seen.add(state)
                    queue.append((state, path + ["row " + (" ".join(taken) or "alone")]))
        return None

    def _end(self, text):
        if self.turns >= self.max_turns:
            self.over = True
            return f"{text} No turns left.", 0.0, False, True, {}
        return self._view(text), 0.0, False, False, {}

    def _view(self, last):
        far = [name for name in self.names if name not in self.here]
        near = [name for name in self.names if name in self.here]
        pairs = ", ".join(f"{a} and {b}" for a, b in self.enemies)
        seats = f"{self.seats} passenger" + "s" * (self.seats > 1)
        return (
            f"Bring everyone to the far bank. Enemies that may not be alone without you: {pairs}.\n"
            f"Near bank: {', '.join(near) or 'nobody'}. Far bank: {', '.join(far) or 'nobody'}. "
            f"You and the boat: {'near' if self.boat_here else 'far'} bank.\n{last} "
            f"Turn {self.turns + 1} of {self.max_turns}.\nThe boat takes you and up to {seats}. "
            "Act with \\boxed{row NAMES}, the word alone in place of NAMES if you take nobody."
        )
