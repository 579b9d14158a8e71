"""Loads the hand-written seed environments and plays them with scripted players.

Only files of this repository are loaded here, never a model's text.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import random
import re
import runpy
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEED_ENVIRONMENTS = ROOT / "experiments" / "seed_environments"
TOOL_BASE = ROOT / "spade_jax" / "domains" / "guest" / "tool_use_base_env.py"

Player = Callable[[str, random.Random], str]  # (newest observation, generator) -> action


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """A seed environment file: its header fields and its class."""

    path: pathlib.Path
    header: dict[str, str]
    make: Callable[[], Any]

    def __str__(self) -> str:
        return self.path.stem


@dataclasses.dataclass(frozen=True, kw_only=True)
class Play:
    """One episode: what was observed, what was done, and how it ended."""

    observations: tuple[str, ...]  # the first from reset, then one a step
    actions: tuple[str, ...]
    rewards: tuple[float, ...]
    terminated: bool
    truncated: bool

    @property
    def won(self) -> bool:
        return self.terminated and self.rewards[-1] == 1.0


def tool_base() -> type:
    """Load the base class as the sandbox does: from its text, without the package around it."""
    return runpy.run_path(str(TOOL_BASE))["ToolUseBaseEnv"]


def families(setting: str) -> list[Family]:
    """Load every file of a setting, in order of name."""
    return [load(path) for path in sorted((SEED_ENVIRONMENTS / setting).glob("*.py"))]


def load(path: pathlib.Path) -> Family:
    """Load one file; its class is the first defined in it whose name ends in Env."""
    names = {"ToolUseBaseEnv": tool_base()} if path.parent.name == "tool_use" else {}
    space = runpy.run_path(str(path), init_globals=names)
    made = [
        value
        for name, value in space.items()
        if name.endswith("Env") and name not in names and isinstance(value, type)
    ]
    return Family(path=path, header=read_header(space["__doc__"]), make=made[0])


def read_header(docstring: str) -> dict[str, str]:
    """Read the `key: value` lines of a file's docstring."""
    return dict(re.findall(r"^([a-z]+): (.+)$", docstring, re.MULTILINE))


def play(environment: Any, seed: int, player: Player | None, player_seed: int = 0) -> Play:
    """Play to the end; without a player, the environment's own solution is played.

    Raises:
        AssertionError: a value has the wrong type, or the episode outlives max_turns.
    """
    rng = random.Random(player_seed)
    observation, extra = environment.reset(seed=seed)
    assert type(observation) is str and observation and type(extra) is dict
    observations, actions, rewards = [observation], [], []
    while True:
        action = player(observation, rng) if player else environment.solution()
        if player is None:
            assert type(action) is str and action
        observation, reward, terminated, truncated, extra = environment.step(action)
        check_types(observation, reward, terminated, truncated, extra)
        observations.append(observation)
        actions.append(action)
        rewards.append(reward)
        if terminated or truncated:
            return Play(
                observations=tuple(observations),
                actions=tuple(actions),
                rewards=tuple(rewards),
                terminated=terminated,
                truncated=truncated,
            )
        assert len(actions) < environment.max_turns, "the episode outlives max_turns"


def check_types(observation, reward, terminated, truncated, extra) -> None:
    """Demand the exact types of the contract."""
    assert type(observation) is str and observation
    assert type(reward) is float and math.isfinite(reward) and -10 <= reward <= 10
    assert type(terminated) is bool and type(truncated) is bool
    assert not (terminated and truncated)
    assert type(extra) is dict


def boxed(text: str) -> str:
    return f"\\boxed{{{text}}}"


def _words(observation: str, rng: random.Random) -> str:
    words = re.findall(r"[\w-]+", observation) or ["x"]
    start = rng.randrange(len(words))
    length = rng.choice((1, 1, 2, 3))
    if rng.random() < 0.5:
        return boxed(" ".join(words[start : start + length]))
    return boxed(" ".join(rng.choice(words) for _ in range(length)))


def _first_option(observation: str, rng: random.Random) -> str:
    listed = re.findall(
        r"(?:[Aa]ctions?|[Oo]ptions?|[Mm]oves?|Act with)\s*:?\s*([^,.;\n]+)", observation
    )
    return boxed(listed[0].strip() if listed else observation.split()[0])


def _first_number(observation: str, rng: random.Random) -> str:
    found = re.findall(r"\d+", observation)
    return boxed(found[0] if found else "1")


NAIVE: dict[str, Player] = {
    "empty": lambda observation, rng: "",
    "empty_box": lambda observation, rng: boxed(""),
    "constant_1": lambda observation, rng: boxed("1"),
    "constant_word": lambda observation, rng: boxed("yes"),
    "constant_a": lambda observation, rng: boxed("A"),
    "echo": lambda observation, rng: observation,
    "echo_boxed": lambda observation, rng: boxed(observation.replace("{", "").replace("}", "")),
    "first_option": _first_option,
    "first_number": _first_number,
    "last_word": lambda observation, rng: boxed(observation.split()[-1]),
    "random_words": _words,
    "random_integers": lambda observation, rng: boxed(str(rng.randint(1, 100))),
    "small_integers": lambda observation, rng: boxed(str(rng.randint(0, 9))),
}

GARBAGE = (
    "",
    " ",
    "\\boxed{}",
    "\\boxed{",
    "}{",
    "\\boxed{{{{x}}}}",
    "\\boxed{" + "9" * 6000 + "}",
    "\\boxed{-1}",
    "\\boxed{0 0 0 0}",
    "\\boxed{1e999}",
    "\\boxed{\u0663 \u00b2}",
    "\\boxed{nan}",
    "\x00\n\t\u202e",
    "a" * 100_000,
    "[" * 50_000,
    "<tool_call>" + "[" * 50_000 + "</tool_call>",
    '<tool_call>{"name": 3}</tool_call>',
    '<tool_call>{"name": "__class__", "arguments": {}}</tool_call>',
    "<tool_call><function=></tool_call>",
    "<answer></answer>",
    "<answer>done</answer>",
    "\\boxed{\\text{go}}",
)


def garbage(observation: str, rng: random.Random) -> str:
    return rng.choice(GARBAGE)


def win_rate(family: Family, player: Player, episodes: int) -> float:
    """Share of episodes, one seed each, that a player wins."""
    environment = family.make()
    return sum(play(environment, seed, player, seed + 1).won for seed in range(episodes)) / episodes


def stands_in(text: str, observation: str) -> bool:
    """Whether a text stands in an observation as a whole, not as part of a longer word."""
    pattern = r"(?<![\w-])" + re.escape(text) + r"(?![\w-])"
    return re.search(pattern, observation, re.IGNORECASE) is not None
