"""All environments alive, the drafts that wait for credit, and the memory of what was written.

In: environments and refusals of a generation; statistics that the update computed per slot. Out:
the table of slots to play next, drafts whose credit is due, memory examples for prompts.
The pool keeps text and identity; numbers per slot live on the device (`curriculum.py`) and are
mirrored here after each update.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from spade_jax import records

SNIPPET_CHARACTERS = 2000  # of a program in the public memory file
UNJUDGED = ("infra", "unplaced")  # reasons of waiting drafts that nobody refused: they are masked


@dataclasses.dataclass(frozen=True, kw_only=True)
class PoolConfig:
    slots: int = 128  # P, environments alive at once
    newest_share: float = 0.5  # of the table kept for the newest generation
    memory: int = 200  # entries remembered
    temperature: float = 0.3  # of the rank-based draw: p ~ rank^(-1/temperature)

    def __post_init__(self):
        if not 0.0 <= self.newest_share <= 1.0:
            raise ValueError(f"pool.newest_share={self.newest_share} must lie in [0, 1].")
        if self.slots < 1 or self.memory < 0:
            raise ValueError(
                f"pool.slots={self.slots}, pool.memory={self.memory}: set slots >= 1, memory >= 0."
            )
        if self.temperature <= 0:
            raise ValueError(f"pool.temperature={self.temperature}: set it above 0.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waiting:
    """A draft whose credit is not yet due."""

    draft: records.Draft
    slot: int  # of its environment, -1 for a refused draft
    reason: str  # of the refusal, "" for an environment in play, or one of UNJUDGED
    penalty: float  # graded novelty penalty, known when it was admitted
    due: int  # iteration whose update credits it


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """What is remembered of an environment after its life."""

    uid: int
    source: str
    skill: str
    generation: int
    win_rate: float
    regret: float


@dataclasses.dataclass
class Pool:
    """Mutable record of the pool; `to_json` and `from_json` carry all of it."""

    environments: list[records.Environment | None]  # by slot
    waiting: list[Waiting] = dataclasses.field(default_factory=list)
    memory: list[Memory] = dataclasses.field(default_factory=list)
    order: int = 0  # admissions so far
    admitted: list[int] = dataclasses.field(default_factory=list)  # admission number by slot
    win_rate_P: list[float] = dataclasses.field(default_factory=list)
    regret_P: list[float] = dataclasses.field(default_factory=list)
    score_P: list[float] = dataclasses.field(default_factory=list)
    retired_P: list[bool] = dataclasses.field(default_factory=list)
    leak_P: list[float] = dataclasses.field(default_factory=list)  # share of hints that leaked


def empty(config: PoolConfig) -> Pool:
    """Make a pool without environments."""
    size = config.slots
    return Pool(
        environments=[None] * size,
        admitted=[-1] * size,
        win_rate_P=[float("nan")] * size,
        regret_P=[0.0] * size,
        score_P=[0.0] * size,
        retired_P=[False] * size,
        leak_P=[0.0] * size,
    )


def admit(pool: Pool, environments: Sequence[records.Environment], config: PoolConfig) -> list[int]:
    """Give each environment a slot: a free one, else a retired one, else the oldest's.

    A new environment gets the highest draw score, like one that nobody has played.
    Slots of environments whose draft still waits for credit are never taken.

    Returns:
      the slot of each environment, -1 where none could be had; the environment is then not played.
    """
    held = {waiting.slot for waiting in pool.waiting}
    slots = []
    for environment in environments:
        slot = _free_slot(pool, held)
        if slot >= 0:
            _remember(pool, slot, config)
            pool.environments[slot] = environment
            pool.admitted[slot] = pool.order
            pool.win_rate_P[slot] = float("nan")
            pool.regret_P[slot], pool.score_P[slot] = 0.0, 1.0
            pool.retired_P[slot], pool.leak_P[slot] = False, 0.0
            pool.order += 1
            held.add(slot)
        slots.append(slot)
    return slots


def draw(
    pool: Pool,
    count: int,
    config: PoolConfig,
    rng: np.random.Generator,
    must: Sequence[int] = (),
) -> list[int]:
    """Choose the slots that play next, without replacement: a share of the newest, then by rank.

    Slots that `must` play come first and count towards the share; see `unplayed`. The share is
    drawn evenly from the newest generation. The rest is drawn from all others by prioritised level
    replay (arXiv:2010.03934): probability ~ rank^(-1/T) of the score that the curriculum gave.
    Retired slots play only where the others do not fill the table.

    Returns:
      the slots in rising order, `count` of them or as many as are alive.
    """
    alive = [p for p, environment in enumerate(pool.environments) if environment is not None]
    if not alive:
        return []
    count = min(count, len(alive))
    newest = max(pool.environments[p].generation for p in alive)
    fresh = [p for p in alive if pool.environments[p].generation == newest]
    wanted = round(config.newest_share * count)
    chosen = [p for p in must if p in alive][:count]
    more = [p for p in fresh if not pool.retired_P[p] and p not in chosen]
    chosen += [int(p) for p in rng.permutation(more)[: max(wanted - len(chosen), 0)]]
    rest = [p for p in alive if p not in set(chosen)]
    return sorted(chosen + _by_rank(pool, rest, count - len(chosen), config.temperature, rng))


def unplayed(pool: Pool, iteration: int) -> list[int]:
    """List the slots whose draft is credited in this iteration and that never played."""
    return [
        waiting.slot
        for waiting in pool.waiting
        if waiting.slot >= 0
        and waiting.due <= iteration
        and np.isnan(pool.win_rate_P[waiting.slot])
    ]


def settle(pool: Pool, win_rate_P, regret_P, score_P, retired_P) -> None:
    """Mirror what the update computed per slot; a retired slot may go to the next admission."""
    pool.win_rate_P = [float(value) for value in win_rate_P]
    pool.regret_P = [float(value) for value in regret_P]
    pool.score_P = [float(value) for value in score_P]
    pool.retired_P = [bool(value) for value in retired_P]


def due(pool: Pool, iteration: int, last: bool) -> list[Waiting]:
    """List the waiting drafts whose credit falls in this update; all of them at the last."""
    return [waiting for waiting in pool.waiting if last or waiting.due <= iteration]


def release(pool: Pool, credited: Sequence[Waiting]) -> None:
    """Drop drafts that have had their credit."""
    gone = {waiting.draft.uid for waiting in credited}
    pool.waiting = [waiting for waiting in pool.waiting if waiting.draft.uid not in gone]


def examples(
    pool: Pool, skill: str, positives: int, negatives: int, rng: np.random.Generator
) -> tuple[list[Memory], list[Memory]]:
    """Draw memory examples of a skill: high regret in the learnable band, and too easy or too hard.

    Source: SPADE, public implementation: band [0.15, 0.85], top max(3n, 10) by regret; negatives
    above 0.9 or below 0.1.
    """
    entries = [entry for entry in memory_view(pool) if entry.skill == skill]
    band = sorted(
        (entry for entry in entries if 0.15 <= entry.win_rate <= 0.85), key=lambda e: -e.regret
    )[: max(3 * positives, 10)]
    outside = [entry for entry in entries if entry.win_rate > 0.9 or entry.win_rate < 0.1]
    return _some(band, positives, rng), _some(outside, negatives, rng)


def memory_view(pool: Pool) -> list[Memory]:
    """Everything remembered, living environments included, with their newest numbers.

    A program is listed once, with the numbers that are newest.
    """
    living = [
        _entry(pool, p, environment)
        for p, environment in enumerate(pool.environments)
        if environment is not None and not np.isnan(pool.win_rate_P[p])
    ]
    return list({entry.source: entry for entry in pool.memory + living}.values())


def memory_file(entries: Sequence[Memory]) -> list[dict[str, Any]]:
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


def to_json(pool: Pool) -> dict[str, Any]:
    """Write the whole pool as JSON-able values."""
    return dataclasses.asdict(pool)


def from_json(values: dict[str, Any]) -> Pool:
    """Read what `to_json` wrote."""
    fields = dict(values)
    fields["environments"] = [
        None if item is None else records.Environment(**item) for item in values["environments"]
    ]
    fields["waiting"] = [
        Waiting(**{**item, "draft": draft_from_json(item["draft"])}) for item in values["waiting"]
    ]
    fields["memory"] = [Memory(**item) for item in values["memory"]]
    fields["win_rate_P"] = [
        float("nan") if value is None else value for value in values["win_rate_P"]
    ]
    return Pool(**fields)


def draft_from_json(values: dict[str, Any]) -> records.Draft:
    """Read a draft that `dataclasses.asdict` wrote."""
    reply = values["reply"]
    return records.Draft(
        **{
            **values,
            "prompt_ids": tuple(values["prompt_ids"]),
            "reply": records.Reply(
                ids=tuple(reply["ids"]), logps=tuple(reply["logps"]), stopped=reply["stopped"]
            ),
        }
    )


def _file_name(entry: Memory) -> str:
    """Name a program as the public implementation does; one from a directory is a seed."""
    skill = re.sub(r"[^a-z0-9]+", "_", entry.skill.lower()).strip("_")
    if entry.uid < 0:
        return f"seed_{-entry.uid:03d}_{skill}.py"
    return f"game_{entry.generation:05d}_{entry.uid:03d}_{skill}.py"


def _free_slot(pool: Pool, held: set[int]) -> int:
    candidates = [p for p in range(len(pool.environments)) if p not in held]
    if not candidates:
        return -1
    empty_slots = [p for p in candidates if pool.environments[p] is None]
    if empty_slots:
        return empty_slots[0]
    retired = [p for p in candidates if pool.retired_P[p]]
    return min(retired or candidates, key=lambda p: pool.admitted[p])


def _remember(pool: Pool, slot: int, config: PoolConfig) -> None:
    environment = pool.environments[slot]
    if environment is None or np.isnan(pool.win_rate_P[slot]):
        return
    pool.memory.append(_entry(pool, slot, environment))
    pool.memory = pool.memory[-config.memory :] if config.memory else []


def _entry(pool: Pool, slot: int, environment: records.Environment) -> Memory:
    return Memory(
        uid=environment.uid,
        source=environment.source,
        skill=environment.skill,
        generation=environment.generation,
        win_rate=pool.win_rate_P[slot],
        regret=pool.regret_P[slot],
    )


def _by_rank(pool: Pool, slots: list[int], count: int, temperature: float, rng) -> list[int]:
    """Draw without replacement, p ~ rank^(-1/T): the largest of log p + Gumbel noise.

    Works in logarithms, so that a steep draw has no weight of 0. Retired slots come last.
    """
    order = sorted(slots, key=lambda p: (pool.retired_P[p], -pool.score_P[p], p))
    keys = -np.log(np.arange(1, len(order) + 1)) / temperature + rng.gumbel(size=len(order))
    retired = np.array([pool.retired_P[p] for p in order], bool)
    return [order[int(i)] for i in np.lexsort((-keys, retired))[:count]]


def _some(entries: list[Memory], count: int, rng: np.random.Generator) -> list[Memory]:
    if count <= 0 or not entries:
        return []
    picked = rng.choice(len(entries), size=min(count, len(entries)), replace=False)
    return [entries[int(i)] for i in sorted(picked)]
