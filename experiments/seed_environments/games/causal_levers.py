"""Steer a machine of wheels that drive one another, by its two levers.

family: causal_levers
skill: Causal Inference
setting: games
kind: multi_turn
split: train
"""

import collections
import random
import re

RULES = {
    "equals {0}": lambda a, b: a,
    "is the opposite of {0}": lambda a, b: 1 - a,
    "is 1 if {0} and {1} are both 1": lambda a, b: a & b,
    "is 1 if {0} or {1} is 1": lambda a, b: a | b,
    "is 1 if {0} and {1} differ": lambda a, b: a ^ b,
}
PARTS = ["L", "M", "P", "Q", "R", "S", "T"]  # two levers, then five wheels


class CausalLeversEnv:
    def __init__(self, max_turns=8):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns, self.over = 0, False
        self.levers = (0, 0)
        while True:
            self.rules = []
            for wheel in range(2, 7):
                rule = rng.choice(list(RULES))
                self.rules.append((rule, *rng.sample([p for p in range(7) if p != wheel], 2)))
            self.wheels = self.start = tuple(rng.randint(0, 1) for _ in range(5))
            plans = self._plans(self.wheels)
            lazy = self._reached_by_repeating()
            far = sorted(g for g, plan in plans.items() if 5 <= len(plan) <= 6 and g not in lazy)
            if far:
                self.goal = rng.choice(far)
                return self._view("The machine stands still."), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "The game is over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip().lower()
        match = re.fullmatch(r"set ([01])([01])", text)
        if not match:
            return self._end("Nothing moved: that is not a setting.")
        self.levers = (int(match.group(1)), int(match.group(2)))
        self.wheels = self._turn(self.wheels, self.levers)
        if self.wheels == self.goal:
            self.over = True
            return "The wheels stand as wanted.", 1.0, True, False, {}
        return self._end("The machine turned.")

    def solution(self):
        plan = self._plans(self.wheels).get(self.goal)
        return plan[0] if plan else "set 00"

    def hint(self):
        plan = self._plans(self.wheels).get(self.goal, [])
        wheels = self.wheels
        for setting in plan[:2]:
            wheels = self._turn(wheels, (int(setting[4]), int(setting[5])))
        return (
            f"{len(plan)} turns are enough. A good state to have after two turns is "
            f"{self._show(wheels)}. Work backwards from the goal."
        )

    def close(self):
        pass

    def _turn(self, wheels, levers):
        """All wheels change at once, from the new levers and the old wheels."""
        parts = levers + wheels
        return tuple(RULES[rule](parts[a], parts[b]) for rule, a, b in self.rules)

    def _plans(self, wheels):
        """Shortest settings from here to every state that can be reached."""
        plans, queue = {wheels: []}, collections.deque([wheels])
        while queue:
            now = queue.popleft()
            for levers in ((0, 0), (0, 1), (1, 0), (1, 1)):
                after = self._turn(now, levers)
                if after not in plans:
                    plans[after] = plans[now] + [f"set {levers[0]}{levers[1]}"]
                    queue.append(after)
        return plans

    def _reached_by_repeating(self):
        """States that one setting, held or alternating with another, comes to by itself."""
        reached = set()
        for first in ((0, 0), (0, 1), (1, 0), (1, 1)):
            for second in ((0, 0), (0, 1), (1, 0), (1, 1)):
                wheels = self.wheels
                for turn in range(self.max_turns):
                    wheels = self._turn(wheels, second if turn % 2 else first)
                    reached.add(wheels)
        return reached

    def _show(self, wheels):
        return " ".join(f"{name}={value}" for name, value in zip(PARTS[2:], wheels))

    def _end(self, text):
        if self.turns >= self.max_turns:
            self.over = True
            return f"{text} No turns left.", 0.0, False, True, {}
        return self._view(text), 0.0, False, False, {}

    def _view(self, last):
        rules = "; ".join(
            f"{name} " + rule.format(PARTS[a], PARTS[b])
            for name, (rule, a, b) in zip(PARTS[2:], self.rules)
        )
        return (
            f"A turn sets the levers L and M, then all wheels change at once: {rules}.\n"
            f"Goal: {self._show(self.goal)}. Now: {self._show(self.wheels)}.\n{last} "
            f"Turn {self.turns + 1} of {self.max_turns}.\n"
            "Act with \\boxed{set LM}, L and M being 0 or 1."
        )
