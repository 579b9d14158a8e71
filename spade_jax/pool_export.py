"""The environments of a run as entries of a pool: programs, hints, statistics, provenance.

In: the pool of a checkpoint and the counts of its curriculum. Out: `pool_files.Entry` records.
Statistics of what left the pool are those that memory kept; None is what nobody counted.
"""

from __future__ import annotations

import math

import numpy as np

from spade_jax import pool, pool_files, records

CHOICES = ("pool", "remembered", "all")


def entries(
    current: pool.Pool, draws_P: np.ndarray, plays_P: np.ndarray, which: str = "pool"
) -> list[pool_files.Entry]:
    """List environments in the order in which they were admitted.

    Args:
      draws_P: iterations in which each slot was drawn.
      plays_P: valid plain plays of each slot.
      which: "pool" those alive, "remembered" also those in memory, "all" every program that ever
        became one; of equal texts the newest.
    """
    if which not in CHOICES:
        raise ValueError(f"which={which!r} must be one of {', '.join(CHOICES)}.")
    slots = {int(current.number_P[slot]): int(slot) for slot in pool.alive(current)}
    kept = {int(number): place for place, number in enumerate(current.memory.number_H)}
    numbers = set(slots)
    if which == "remembered":
        numbers |= set(kept)
    if which == "all":
        numbers = set(range(len(current.archive)))
    newest = {}  # text -> number; one in the pool before one that left it
    for number in sorted(numbers, key=lambda n: (n in slots, n in kept, n)):
        newest[current.archive.read(number).source] = number
    made = []
    for number in sorted(newest.values()):
        slot = slots.get(number)
        environment = current.archive.read(number)
        statistics = {}
        if slot is not None:
            environment = pool.environment(current, slot)
            statistics = _of_slot(current, slot, draws_P, plays_P)
        elif number in kept:
            statistics = _of_memory(current, kept[number])
        made.append(_entry(number, environment, statistics, slot is not None))
    return made


def _entry(number: int, environment: records.Environment, statistics, alive: bool):
    return pool_files.Entry(
        family=f"{environment.family or environment.setting}_{number:06d}",
        source=environment.source,
        setting=environment.setting,
        skill=environment.skill,
        difficulty=environment.difficulty,
        max_turns=environment.max_turns,
        hint=environment.hint,
        statistics={name: None if math.isnan(x) else x for name, x in statistics.items()},
        origin={
            "number": number,  # line of programs.jsonl, from 0
            "uid": environment.uid,
            "generation": environment.generation,
            "family": environment.family,
            "digest": environment.digest,
            "alive": alive,
        },
    )


def _of_slot(current: pool.Pool, slot: int, draws_P, plays_P) -> dict[str, float]:
    columns = {
        "win_rate": current.win_rate_P,
        "regret": current.regret_P,
        "draws": draws_P,
        "plays": plays_P,
        "score": current.score_P,
        "leaks": current.leak_P,
        "blind_wins": current.blind_P,
    }
    return {name: float(values[slot]) for name, values in columns.items()}


def _of_memory(current: pool.Pool, place: int) -> dict[str, float]:
    return {
        "win_rate": float(current.memory.win_rate_H[place]),
        "regret": float(current.memory.regret_H[place]),
    }
