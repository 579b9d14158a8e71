"""All environments alive, the drafts that wait for credit, and the memory of what was written.

In: environments and refusals of a generation; statistics that the update computed per slot. Out:
the table of slots to play next, drafts whose credit is due, memory for prompts.
Programs lie in the archive, numbers here as arrays by slot, which mirror those on the device
(`curriculum.py`) after each update: the costliest step is a sort of such an array.
"""

from __future__ import annotations

import base64
import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from spade_jax import archive, fingerprints, memory, neighbours, records

UNJUDGED = ("infra", "unplaced")  # reasons of waiting drafts that nobody refused: they are masked


@dataclasses.dataclass(frozen=True, kw_only=True)
class PoolConfig:
    """How many environments live and are remembered, and how a table is drawn."""

    slots: int = 128  # P, environments alive at once
    newest_share: float = 0.5  # of the table for the newest generation; 0 lets it compete by score
    memory: int = 200  # entries remembered
    temperature: float = 0.3  # of the rank-based draw: p ~ rank^(-1/temperature)
    order: Literal["rank", "shuffle"] = "rank"  # shuffle: each of a fixed pool once, then anew

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
    penalty: float  # graded: novelty, known when it was admitted, and what a review charges
    due: int  # iteration whose update credits it
    reviewed: bool = False  # see reviewing.py
    temperature: float = 1.0  # it was sampled at


@dataclasses.dataclass
class Pool:
    """Mutable record of the pool; `to_json` and `from_json` carry all of it but the programs."""

    archive: archive.Archive
    number_P: np.ndarray  # int32, of the slot's environment in the archive, -1 for a free slot
    generation_P: np.ndarray  # int32
    skill_P: np.ndarray  # uint32, memory.skill_code
    win_rate_P: np.ndarray  # float32, NaN before the first play
    regret_P: np.ndarray  # float32
    score_P: np.ndarray  # float32
    retired_P: np.ndarray  # bool
    leak_P: np.ndarray  # float32, share of hints that leaked
    blind_P: np.ndarray  # float32, share of wins by actions that do not look at the task
    banned_P: np.ndarray  # bool, retired for good by a safeguard
    hints: dict[int, tuple[str | None, bool]]  # slot -> hint of the policy, whether it failed
    memory: memory.Numbers
    known: neighbours.Neighbours  # of pool and memory, by archive number
    waiting: list[Waiting] = dataclasses.field(default_factory=list)


_COLUMNS = {  # name -> dtype and value of a free slot
    "number_P": (np.int32, -1),
    "generation_P": (np.int32, 0),
    "skill_P": (np.uint32, 0),
    "win_rate_P": (np.float32, np.nan),
    "regret_P": (np.float32, 0.0),
    "score_P": (np.float32, 0.0),
    "retired_P": (np.bool_, False),
    "leak_P": (np.float32, 0.0),
    "blind_P": (np.float32, 0.0),
    "banned_P": (np.bool_, False),
}
_LOOKED_UP = ("generation_P", "skill_P")  # columns that a checkpoint leaves to the archive


def empty(config: PoolConfig, programs: archive.Archive | None = None) -> Pool:
    """Make a pool without environments, over the archive given or a temporary one."""
    return Pool(
        archive=archive.Archive() if programs is None else programs,
        hints={},
        memory=memory.empty(),
        known=neighbours.Neighbours(),
        **{name: np.full(config.slots, free, kind) for name, (kind, free) in _COLUMNS.items()},
    )


def alive(pool: Pool) -> np.ndarray:
    """List the slots that hold an environment."""
    return np.flatnonzero(pool.number_P >= 0)


def environment(pool: Pool, slot: int) -> records.Environment | None:
    """Look up the environment of a slot, with the hint that was written for it."""
    number = int(pool.number_P[slot])
    if number < 0:
        return None
    found = pool.archive.read(number)
    if slot in pool.hints:
        hint, failed = pool.hints[slot]
        found = dataclasses.replace(found, hint=hint, hint_failed=failed)
    return found


def note_hint(pool: Pool, slot: int, hinted: records.Environment) -> None:
    """Keep the hint that was written for a slot, or that none could be."""
    pool.hints[slot] = (hinted.hint, hinted.hint_failed)


def admit(pool: Pool, environments: Sequence[records.Environment], config: PoolConfig) -> list[int]:
    """Give each environment a slot: a free one, else a retired one, else the oldest's.

    A new environment gets the highest draw score, like one that nobody has played.
    Slots of environments whose draft still waits for credit are never taken.

    Returns:
      the slot of each environment, -1 where none could be had; the environment is then not played.
    """
    slots = _slots_to_give(pool, len(environments))
    _forget(pool, slots, config)
    for slot, new in zip(slots, environments, strict=False):
        number = pool.archive.append(new)
        neighbours.add(pool.known, number, new.digest, fingerprints.from_text(new.signature))
        pool.hints.pop(slot, None)
        row = {
            "number_P": number,
            "generation_P": new.generation,
            "skill_P": memory.skill_code(new.skill),
            "score_P": 1.0,
        }
        for name, (_, free) in _COLUMNS.items():
            getattr(pool, name)[slot] = row.get(name, free)
    return slots + [-1] * (len(environments) - len(slots))


def draw(
    pool: Pool,
    count: int,
    config: PoolConfig,
    rng: np.random.Generator,
    must: Sequence[int] = (),
) -> list[int]:
    """Choose the slots that play next, without replacement: a share of the newest, then by rank.

    Slots that `must` play come first and count towards the share; see `unplayed`. The share is
    drawn evenly from the newest generation. The rest is drawn from older ones by prioritised level
    replay (arXiv:2010.03934): probability ~ rank^(-1/T) of the score that the curriculum gave.
    More of the newest generation, and then retired slots, play only where older ones are too few.

    Returns:
      the slots in rising order, `count` of them or as many as are alive.
    """
    living = alive(pool)
    if not len(living):
        return []
    count = min(count, len(living))
    generation_N = pool.generation_P[living]
    fresh = living[(generation_N == generation_N.max()) & ~pool.retired_P[living]]
    wanted = round(config.newest_share * count)
    chosen = [int(p) for p in must if pool.number_P[p] >= 0][:count]
    more = fresh[~np.isin(fresh, chosen)]
    chosen += [int(p) for p in rng.permutation(more)[: max(wanted - len(chosen), 0)]]
    rest = living[~np.isin(living, chosen)]
    older = rest[pool.generation_P[rest] != generation_N.max()]
    if config.newest_share and (~pool.retired_P[older]).sum() >= count - len(chosen):
        rest = older
    return sorted(chosen + _by_rank(pool, rest, count - len(chosen), config.temperature, rng))


def shuffled(
    pool: Pool, count: int, iteration: int, rng_of: Callable[[int], np.random.Generator]
) -> list[int]:
    """Choose the slots that play in an iteration, each once before any plays again.

    The order is a shuffle per round. Where a round ends within a table, the next one fills it with
    slots that are not in it yet. Source: the static pool of SPADE's public implementation.

    Args:
      rng_of: number of the round -> its random stream; the choice depends on nothing else.
    """
    living = alive(pool)
    count = min(count, len(living))
    order = living[:0]
    rounds = 0
    while count and len(order) < (iteration + 1) * count:
        begun = order[len(order) - len(order) % count :]
        more = rng_of(rounds).permutation(living)
        held = np.isin(more, begun)
        order = np.concatenate([order, more[~held], more[held]])
        rounds += 1
    return sorted(order[iteration * count : (iteration + 1) * count].tolist())


def unplayed(pool: Pool, iteration: int, last: bool) -> list[int]:
    """List the slots whose draft is credited in this iteration and that never played."""
    return [
        waiting.slot
        for waiting in due(pool, iteration, last=last)
        if waiting.slot >= 0 and np.isnan(pool.win_rate_P[waiting.slot])
    ]


def settle(pool: Pool, win_rate_P, regret_P, score_P, retired_P) -> None:
    """Mirror what the update computed per slot; a retired slot may go to the next admission."""
    pool.win_rate_P = np.array(win_rate_P, np.float32)
    pool.regret_P = np.array(regret_P, np.float32)
    pool.score_P = np.array(score_P, np.float32)
    pool.retired_P = np.array(retired_P, np.bool_) | pool.banned_P


def due(pool: Pool, iteration: int, last: bool) -> list[Waiting]:
    """List the waiting drafts whose credit falls in this update; all of them at the last."""
    return [waiting for waiting in pool.waiting if last or waiting.due <= iteration]


def release(pool: Pool, credited: Sequence[Waiting]) -> None:
    """Drop drafts that have had their credit."""
    gone = {waiting.draft.uid for waiting in credited}
    pool.waiting = [waiting for waiting in pool.waiting if waiting.draft.uid not in gone]


def memory_view(pool: Pool) -> memory.Numbers:
    """Everything remembered, living environments included, with their newest numbers.

    A program is listed once, with the numbers that are newest.
    """
    played = np.flatnonzero((pool.number_P >= 0) & ~np.isnan(pool.win_rate_P))
    both = memory.join(pool.memory, _entries(pool, played))
    if len(pool.known.digests) == len(pool.known.digest_of):
        return both
    copies = [numbers for numbers in pool.known.digests.values() if len(numbers) > 1]
    older = [n for numbers in copies for n in sorted(set(numbers) & {*both.number_H})[:-1]]
    return memory.select(both, ~np.isin(both.number_H, older))


def to_json(pool: Pool) -> dict[str, Any]:
    """Write the pool as JSON-able values; programs as the count of those in the archive."""
    return {
        "programs": len(pool.archive),
        "columns": {
            name: _column_to_json(getattr(pool, name), free)
            for name, (_, free) in _COLUMNS.items()
            if name not in _LOOKED_UP
        },
        "hints": [[slot, *hint] for slot, hint in sorted(pool.hints.items())],
        "memory": [
            _to_text(pool.memory.number_H.astype(np.int32)),
            _to_text(pool.memory.win_rate_H),
            _to_text(pool.memory.regret_H),
        ],
        "waiting": [dataclasses.asdict(waiting) for waiting in pool.waiting],
    }


def from_json(values: dict[str, Any], path: str | os.PathLike) -> Pool:
    """Read what `to_json` wrote, with the archive at `path`.

    Raises:
      archive.ArchiveError: programs are missing there.
    """
    kept = archive.Archive(path, values["programs"])
    columns = {
        name: _column_from_json(column, *_COLUMNS[name])
        for name, column in values["columns"].items()
    }
    kinds = (np.int32, np.float32, np.float32)
    number_H, *numbers = map(_from_text, values["memory"], kinds)
    living = np.flatnonzero(columns["number_P"] >= 0)
    for name in _LOOKED_UP:
        columns[name] = np.full(len(columns["number_P"]), _COLUMNS[name][1], _COLUMNS[name][0])
    known, codes = neighbours.Neighbours(), {}
    slots = dict(zip(columns["number_P"][living].tolist(), living.tolist(), strict=True))
    for number in sorted({*slots, *number_H.tolist()}):
        found = kept.read(number)
        neighbours.add(known, number, found.digest, fingerprints.from_text(found.signature))
        codes[number] = memory.skill_code(found.skill)
        if number in slots:
            columns["generation_P"][slots[number]] = found.generation
            columns["skill_P"][slots[number]] = codes[number]
    return Pool(
        archive=kept,
        hints={slot: (hint, failed) for slot, hint, failed in values["hints"]},
        memory=memory.of(number_H, [codes[number] for number in number_H.tolist()], *numbers),
        known=known,
        waiting=[
            Waiting(**{**item, "draft": draft_from_json(item["draft"])})
            for item in values["waiting"]
        ],
        **columns,
    )


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


def _slots_to_give(pool: Pool, count: int) -> list[int]:
    """Order the slots that may be given: free ones, retired ones, then the oldest."""
    kind_P = np.where(pool.number_P < 0, 0, np.where(pool.retired_P, 1, 2))
    age_P = np.where(kind_P == 0, np.arange(len(kind_P)), pool.number_P)  # in order of admission
    held = [waiting.slot for waiting in pool.waiting if waiting.slot >= 0]
    kind_P[held] = 3
    order = np.lexsort((age_P, kind_P))[:count]
    return [int(p) for p in order if kind_P[p] < 3]


def _forget(pool: Pool, slots: list[int], config: PoolConfig) -> None:
    """Move what leaves these slots to memory, and the oldest entries out of it."""
    leaving = np.array([p for p in slots if pool.number_P[p] >= 0], int)
    if not len(leaving):
        return
    played = leaving[~np.isnan(pool.win_rate_P[leaving])]
    pool.memory = memory.join(pool.memory, _entries(pool, played))
    excess = max(len(pool.memory) - config.memory, 0)
    gone = {*pool.number_P[leaving].tolist(), *pool.memory.number_H[:excess].tolist()}
    pool.memory = memory.select(pool.memory, slice(excess, None))
    for number in gone - set(pool.memory.number_H[-len(slots) :].tolist()):
        neighbours.remove(pool.known, number)


def _entries(pool: Pool, slots: np.ndarray) -> memory.Numbers:
    return memory.of(
        pool.number_P[slots], pool.skill_P[slots], pool.win_rate_P[slots], pool.regret_P[slots]
    )


def _by_rank(pool: Pool, slots: np.ndarray, count: int, temperature: float, rng) -> list[int]:
    """Draw without replacement, p ~ rank^(-1/T): the largest of log p + Gumbel noise.

    Works in logarithms, so that a steep draw has no weight of 0. Retired slots come last.
    """
    order = slots[np.lexsort((-pool.score_P[slots], pool.retired_P[slots]))]
    keys = -np.log(np.arange(1, len(order) + 1)) / temperature + rng.gumbel(size=len(order))
    playing = int((~pool.retired_P[order]).sum())
    first = order[_largest(keys[:playing], count)]
    last = order[playing:][_largest(keys[playing:], count - len(first))]
    return [*first.tolist(), *last.tolist()]


def _largest(keys: np.ndarray, count: int) -> np.ndarray:
    """Give the places of the largest keys."""
    if count <= 0 or not len(keys):
        return np.zeros(0, int)
    return np.argpartition(-keys, min(count, len(keys)) - 1)[:count]


def _column_to_json(values_P: np.ndarray, free: Any) -> str | list:
    """Write a column whole, or only what differs from a free slot where little does."""
    same_P = np.isnan(values_P) if free != free else values_P == free
    places = np.flatnonzero(~same_P)
    if 4 * len(places) > len(values_P):
        return _to_text(values_P)
    return [len(values_P), _to_text(places.astype(np.int32)), _to_text(values_P[places])]


def _column_from_json(column: str | list, kind: Any, free: Any) -> np.ndarray:
    if isinstance(column, str):
        return _from_text(column, kind)
    slots, places, values = column
    values_P = np.full(slots, free, kind)
    values_P[_from_text(places, np.int32)] = _from_text(values, kind)
    return values_P


def _to_text(values: np.ndarray) -> str:
    return base64.b64encode(values.tobytes()).decode()


def _from_text(text: str, kind: Any) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), kind).copy()
