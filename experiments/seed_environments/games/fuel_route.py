"""Drive to a town with a small tank and just enough coins for the right pumps.

family: fuel_route
skill: Optimization
setting: games
kind: multi_turn
split: train
"""

import collections
import heapq
import random
import re


class FuelRouteEnv:
    def __init__(self, max_turns=10):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns, self.over = 0, False
        while True:
            self._draw(rng)
            self.coins = self._cheapest()
            plan = self._plan() if self.coins else None
            if plan and 5 <= len(plan) <= 7 and sum(m.startswith("fill") for m in plan) >= 2:
                return self._view("You start."), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "The game is over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip().lower()
        match = re.fullmatch(r"(drive|fill) ([a-g])", text)
        move = f"{match.group(1)} {match.group(2).upper()}" if match else ""
        moves = self._moves(self.town, self.fuel, self.coins)
        if move not in moves:
            return self._end("That is not possible now.")
        self.town, self.fuel, self.coins = moves[move]
        if self.town == self.goal:
            self.over = True
            return "You arrived.", 1.0, True, False, {}
        if not self._moves(self.town, self.fuel, self.coins):
            self.over = True
            return "You are stranded. You lost.", 0.0, True, False, {}
        return self._end("Done.")

    def solution(self):
        plan = self._plan()
        return plan[0] if plan else f"drive {self.goal}"

    def hint(self):
        plan = self._plan() or []
        used = [move[-1] for move in plan if move.startswith("fill")]
        skipped = [town for town in self.pumps if town not in used]
        told = f" Do not pay at {' or '.join(skipped)}." if skipped else ""
        return f"{len(plan)} actions are enough, {len(used)} of them at pumps.{told}"

    def close(self):
        pass

    def _draw(self, rng):
        self.roads = collections.defaultdict(dict)
        towns = list("ABCDEFG")
        rng.shuffle(towns)
        for place, town in enumerate(towns[1:], 1):
            self._road(town, towns[max(0, place - rng.randint(1, 2))], rng)
        for _ in range(4):
            self._road(*rng.sample(towns, 2), rng)
        self.town, self.goal = towns[0], towns[-1]
        self.pumps = {town: rng.randint(1, 6) for town in sorted(rng.sample(towns[:-1], 4))}
        self.tank = rng.randint(6, 8)
        self.fuel = rng.randint(2, 5)

    def _road(self, a, b, rng):
        self.roads[a][b] = self.roads[b][a] = rng.randint(2, 6)

    def _moves(self, town, fuel, coins):
        found = {
            f"drive {other}": (other, fuel - cost, coins)
            for other, cost in sorted(self.roads[town].items())
            if cost <= fuel
        }
        if town in self.pumps and self.pumps[town] <= coins and fuel < self.tank:
            found[f"fill {town}"] = (town, self.tank, coins - self.pumps[town])
        return found

    def _cheapest(self):
        """Fewest coins that reach the goal, None if nothing does."""
        queue, spent = [(0, self.town, self.fuel)], {}
        while queue:
            cost, town, fuel = heapq.heappop(queue)
            if town == self.goal:
                return cost
            if spent.get((town, fuel), 999) <= cost:
                continue
            spent[town, fuel] = cost
            for after, left, rest in self._moves(town, fuel, 999).values():
                heapq.heappush(queue, (cost + 999 - rest, after, left))
        return None

    def _plan(self):
        """Shortest list of actions that reaches the goal with the coins left."""
        start = (self.town, self.fuel, self.coins)
        queue, seen = collections.deque([(start, [])]), {start}
        while queue:
            state, path = queue.popleft()
            if state[0] == self.goal:
                return path
            for move, after in self._moves(*state).items():
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
        roads = ", ".join(
            f"{a}-{b} {cost}"
            for a in sorted(self.roads)
            for b, cost in sorted(self.roads[a].items())
            if a < b
        )
        pumps = ", ".join(f"{town} {price}" for town, price in self.pumps.items())
        return (
            f"Reach town {self.goal}. Roads with the fuel they need: {roads}.\n"
            f"Pumps with the coins a full tank costs: {pumps}.\n"
            f"You are in {self.town} with fuel {self.fuel} of {self.tank} and {self.coins} coins. "
            f"{last} Turn {self.turns + 1} of {self.max_turns}.\n"
            "Act with \\boxed{drive X} to a neighbour X, or \\boxed{fill X} at the pump of your "
            "town X."
        )
