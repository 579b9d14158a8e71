"""What is remembered of environments after their life: numbers here, programs in the archive.

In: environments that leave the pool, with their win rate and regret. Out: a view over pool and
memory together, and examples for a designer's prompt. Axis H: entries.
Source: SPADE, public implementation: first in first out; band [0.15, 0.85], top max(3n, 10) by
regret; negatives above 0.9 or below 0.1. Differs: numbers follow the environment while it lives.
"""

from __future__ import annotations

import dataclasses
import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from spade_jax import records

SNIPPET_CHARACTERS = 2000  # of a program in the public memory file
BAND = (0.15, 0.85)  # win rates of an example worth following
OUTSIDE = (0.1, 0.9)  # beyond these an environment was too hard or too easy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Numbers:
    """Entries, oldest first."""

    number_H: np.ndarray  # int64, of the environment in the archive
    skill_H: np.ndarray  # uint32, `skill_code` of its skill
    win_rate_H: np.ndarray  # float32
    regret_H: np.ndarray  # float32

    def __len__(self) -> int:
        return len(self.number_H)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Remembered:
    """An entry with its program."""

    uid: int
    source: str
    skill: str
    generation: int
    win_rate: float
    regret: float


def empty() -> Numbers:
    """Remember nothing."""
    return of([], [], [], [])


def of(number_H, skill_H, win_rate_H, regret_H) -> Numbers:
    """Make entries of any sequences."""
    return Numbers(
        number_H=np.asarray(number_H, np.int64),
        skill_H=np.asarray(skill_H, np.uint32),
        win_rate_H=np.asarray(win_rate_H, np.float32),
        regret_H=np.asarray(regret_H, np.float32),
    )


def join(first: Numbers, second: Numbers) -> Numbers:
    """Put entries after others."""
    names = [field.name for field in dataclasses.fields(Numbers)]
    return Numbers(**{n: np.concatenate([getattr(first, n), getattr(second, n)]) for n in names})


def select(entries: Numbers, chosen: Any) -> Numbers:
    """Take entries by a mask, a slice or positions."""
    names = [field.name for field in dataclasses.fields(Numbers)]
    return Numbers(**{name: getattr(entries, name)[chosen] for name in names})


def skill_code(skill: str) -> int:
    """Number a skill, equally in every process."""
    return zlib.crc32(skill.encode())


def candidates(entries: Numbers, skill: str, positives: int) -> tuple[Numbers, Numbers]:
    """Give what may be shown of a skill: high regret in the band, best first; too easy or hard."""
    own = np.flatnonzero(entries.skill_H == skill_code(skill))
    win_rate, regret = entries.win_rate_H[own], entries.regret_H[own]
    inside = np.flatnonzero((win_rate >= BAND[0]) & (win_rate <= BAND[1]))
    count = max(3 * positives, 10)
    if len(inside) > count:  # a sort of the best alone, ties of the last place included
        least = np.partition(regret[inside], -count)[-count]
        inside = inside[regret[inside] >= least]
    best = inside[np.argsort(-regret[inside], kind="stable")[:count]]
    outside = (win_rate < OUTSIDE[0]) | (win_rate > OUTSIDE[1])
    return select(entries, own[best]), select(entries, own[outside])


def examples(
    found: tuple[Numbers, Numbers],
    positives: int,
    negatives: int,
    rng: np.random.Generator,
    read: Callable[[int], records.Environment],
) -> tuple[list[Remembered], list[Remembered]]:
    """Draw examples for one prompt.

    Args:
      found: `candidates` of the prompt's skill.
      read: number in the archive -> environment.
    """
    band, outside = found
    drawn = [_some(band, positives, rng), _some(outside, negatives, rng)]
    return tuple(remembered(entries, read) for entries in drawn)


def remembered(entries: Numbers, read: Callable[[int], records.Environment]) -> list[Remembered]:
    """Look up the programs of entries."""
    found = []
    for i in range(len(entries)):
        environment = read(int(entries.number_H[i]))
        found.append(
            Remembered(
                uid=environment.uid,
                source=environment.source,
                skill=environment.skill,
                generation=environment.generation,
                win_rate=float(entries.win_rate_H[i]),
                regret=float(entries.regret_H[i]),
            )
        )
    return found


def public_file(entries: Sequence[Remembered]) -> list[dict[str, Any]]:
    """Write memory as the public implementation's JSON list does, for exact cases: NaN is None."""
    return [
        {
            "game_file": _file_name(entry),
            "skill": entry.skill,
            "code_snippet": entry.source[:SNIPPET_CHARACTERS],
            "actor_win_rate": None if np.isnan(entry.win_rate) else entry.win_rate,
            "regret": None if np.isnan(entry.regret) else entry.regret,
            "rollout_id": entry.generation,
            "metadata": {"uid": entry.uid},
        }
        for entry in entries
    ]


def _file_name(entry: Remembered) -> str:
    """Name a program as the public implementation does; one from a directory is a seed."""
    skill = re.sub(r"[^a-z0-9]+", "_", entry.skill.lower()).strip("_")
    if entry.uid < 0:
        return f"seed_{-entry.uid:03d}_{skill}.py"
    return f"game_{entry.generation:05d}_{entry.uid:03d}_{skill}.py"


def _some(entries: Numbers, count: int, rng: np.random.Generator) -> Numbers:
    if count <= 0 or not len(entries):
        return select(entries, slice(0, 0))
    picked = rng.choice(len(entries), size=min(count, len(entries)), replace=False)
    return select(entries, np.sort(picked))
