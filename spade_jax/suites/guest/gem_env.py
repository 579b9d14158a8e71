"""One environment of GEM, as the package makes it; runs in the sandbox only, never imported here.

What the package tells the agent beside an observation (its suffix) stands below it. A game that
has more turns than the run allows is truncated at the last of them.
"""

import json

import gem

NAME, CONFIG, TURNS = json.loads(__DATA__)  # noqa: F821  filled in by libraries.py
NUMBER = __NUMBER__  # noqa: F821  tells it from the library's others, alike but for data
ASK = "\n\nPut your final answer within \\boxed{}."


class GemGameEnv:
    """One environment of GEM; rewards and ends are the package's."""

    def __init__(self):
        self.game = gem.make(NAME, **CONFIG)
        turns = getattr(self.game, "max_turns", None)
        self.max_turns = turns if type(turns) is int and turns > 0 else TURNS

    def reset(self, seed=None):
        """Begin the game of a seed, with its reference answer where the package has one."""
        observation, told = self.game.reset(seed=seed)
        self.turns = 0
        entry = getattr(self.game, "data", None)
        known = entry.get("answer") if isinstance(entry, dict) else None
        # Games have no reference answer, and so the program has no solution().
        self.solution = None if known is None else lambda: "\\boxed{" + str(known) + "}"
        return self.shown(observation, told) + (ASK if NAME.startswith("rg:") else ""), {}

    def step(self, action):
        """Play one action; the run's limit of turns ends a game that goes on."""
        observation, reward, terminated, truncated, told = self.game.step(action)
        self.turns += 1
        over = bool(truncated) or (not terminated and self.turns >= self.max_turns)
        return self.shown(observation, told), float(reward), bool(terminated), over, {}

    def shown(self, observation, told):
        """Join an observation and what the package wants shown behind it."""
        suffix = told.get("suffix") if isinstance(told, dict) else None
        return f"{observation}\n{suffix}" if suffix else str(observation)
