"""A pool whose difficulty follows a sliding window per environment: the baseline without designer.

Each seed environment has a range of levels, from its easy knobs (level 0) to its hard ones. Plays
happen at a level drawn evenly from the range; only those at its top are counted. After enough of
them the range moves up where the agent wins often enough, and the counters start anew.
Source: adaptive difficulty of RLVE, as the public implementation of SPADE uses it for a baseline.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from spade_jax import fingerprints, programs, records, seed_files


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowConfig:
    """When the window of an environment moves, and how wide it is."""

    on: bool = False  # only with mode="fixed_pool"
    accuracy: float = 0.9  # win rate at the top that opens the next level
    plays: int = 8  # at the top, between two looks at it
    width: int = 4  # levels of the range at most
    highest: int = 20  # level of the hard knobs

    def __post_init__(self):
        if min(self.plays, self.width, self.highest) < 1 or not 0.0 < self.accuracy <= 1.0:
            raise ValueError(
                f"window.plays={self.plays}, width={self.width}, highest={self.highest}, accuracy="
                f"{self.accuracy}: use counts >= 1 and an accuracy in (0, 1]."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """The range of one environment."""

    low: int = 0
    high: int = 0
    plays: int = 0  # at `high` since the last look
    wins: int = 0


def played(window: Window, level: int, plays: int, wins: int, config: WindowConfig) -> Window:
    """Take in plays at a level; move the range where enough of them were won."""
    if level != window.high:
        return window
    plays, wins = window.plays + plays, window.wins + wins
    if plays < config.plays:
        return dataclasses.replace(window, plays=plays, wins=wins)
    high = window.high
    if wins / plays >= config.accuracy:
        high = min(high + 1, config.highest)
    return Window(low=max(window.low, high - config.width + 1), high=high)


def turn(
    table: Sequence[records.Environment],
    windows: Mapping[str, Window],
    seeds: Sequence[seed_files.SeedFile],
    config: WindowConfig,
    rng: np.random.Generator,
) -> tuple[list[records.Environment], list[int]]:
    """Turn each environment of a table to a level of its range.

    Args:
      windows: family -> range; a family that is absent begins at level 0.
      seeds: files that the families of the table are written in.
    Returns:
      the table, and the level of each row.
    """
    files = {seed.family: seed for seed in seeds}
    levels = [draw(windows.get(e.family, Window()), rng) for e in table]
    turned = [
        at_level(files[e.family], e, level, config.highest)
        for e, level in zip(table, levels, strict=True)
    ]
    return turned, levels


def note(
    windows: dict[str, Window],
    table: Sequence[records.Environment],
    levels: Sequence[int],
    episodes: Sequence[records.Episode],
    config: WindowConfig,
) -> None:
    """Take in the valid plain plays of an iteration."""
    plays, wins = collections.Counter(), collections.Counter()
    for e in episodes:
        if e.arm == records.PLAIN and not e.fault:
            plays[e.environment] += 1
            wins[e.environment] += e.value > 0
    for row, level in enumerate(levels):
        family = table[row].family
        before = windows.get(family, Window())
        windows[family] = played(before, level, plays[row], wins[row], config)


def draw(window: Window, rng: np.random.Generator) -> int:
    """Draw a level of the range."""
    return int(rng.integers(window.low, window.high + 1))


def at_level(
    seed: seed_files.SeedFile, environment: records.Environment, level: int, highest: int
) -> records.Environment:
    """Turn an environment's knobs to a level between easy, 0, and hard, `highest`."""
    turned = {
        literal: round(easy + (hard - easy) * level / highest)
        for literal, (easy, _, hard) in seed.knobs.items()
    }
    source = seed_files.turn_knobs(seed.code, turned)
    third = min(3 * level // (highest + 1), 2)
    return dataclasses.replace(
        environment,
        source=source,
        digest=fingerprints.digest(programs.parse(source)),
        difficulty=records.DIFFICULTIES[third],
    )
