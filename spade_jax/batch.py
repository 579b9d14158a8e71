"""Batch: episodes and drafts become packed rows and tables of fixed shape, on the device.

In: what was played and the drafts whose credit is due. Out: a `Batch` for `learn.update`, and the
count of every sequence by what becomes of it. Rows hold several sequences behind each other, told
apart by segment ids; a table of sequences ties each to its draft or to its play.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from spade_jax import packing, records
from spade_jax.policy import sharding

MASKED = (
    "hinted",  # by design: only plain plays are trained
    "environment_fault",
    "infra_fault",
    "too_long",  # does not fit a row, or its first prompt not the context
    "no_spread",  # all returns of its group are equal, left out by drop_flat_groups
    "truncated",  # an episode that did not end by itself, left out by drop_truncated
    "malformed",  # no reply whose tool call could be read, left out by mask_malformed
    "empty",  # no reply
    "unchecked",  # a draft nobody could judge
    "paused",  # a draft while the designer is frozen or paused, or refused ones are forgotten
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """Shapes of a batch."""

    row_tokens: int = 256  # T
    rows_multiple: int = 8  # B is a multiple of it; itself of microbatches and mesh devices
    rows: tuple[int, ...] = ()  # allowed B, ascending; () takes eight sizes per doubling
    drop_flat_groups: bool = False  # leave out plays whose advantage is 0: exact without KL and
    # entropy terms, and cheaper; they stay in every denominator
    drop_truncated: bool = False  # leave out plays that were cut off, by a limit of tokens, turns
    # or context or by the environment; their return 0 stays in the baseline of their group and
    # they themselves in denominators that count sequences ("compact filter" of the public
    # implementation); one that counts trained tokens loses theirs
    mask_malformed: bool = False  # leave out replies whose tool call cannot be read; the other
    # turns of their episode are trained

    def __post_init__(self):
        if self.row_tokens < 2 or self.rows_multiple < 1:
            raise ValueError(
                f"batch.row_tokens={self.row_tokens}, rows_multiple={self.rows_multiple}: use "
                "row_tokens >= 2 and rows_multiple >= 1."
            )
        odd = [rows for rows in self.rows if rows % self.rows_multiple or rows < 1]
        if odd or list(self.rows) != sorted(set(self.rows)):
            raise ValueError(
                f"batch.rows={self.rows} must rise and be multiples of rows_multiple="
                f"{self.rows_multiple}."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableShape:
    """Sizes of the tables; a batch may fill less."""

    environments: int  # N
    seeds: int  # S
    plays: int  # G, the larger arm's
    drafts: int  # M, credited in one update at most


@dataclasses.dataclass(frozen=True, kw_only=True)
class DraftCredit:
    """A draft whose credit is due."""

    draft: records.Draft
    slot: int = -1  # pool slot of its environment; -1 where it was refused
    fixed: float = 0.0  # reward of a refused draft
    penalty: float = 0.0  # graded: novelty, hint leak
    unchecked: bool = False  # nobody could judge it: masked
    paused: bool = False  # the designer is not trained now: masked
    temperature: float = 1.0  # it was sampled at


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """What the update takes. Q = M + N * S * G sequences: drafts first, then plain plays."""

    tokens_BT: jax.Array  # int32
    positions_BT: jax.Array  # int32, from 0 within each sequence
    segments_BT: jax.Array  # int32, 1, 2, ... within a row, 0 for padding
    mask_BT: jax.Array  # float32, 1 where the token is a trained prediction target
    logps_BT: jax.Array  # float32, the sampler's log-probability of that token
    roles_BT: jax.Array  # int32
    sequences_BT: jax.Array  # int32, index into the table of sequences; 0 for padding
    roles_Q: jax.Array  # int32
    index_Q: jax.Array  # int32: m of a draft; (n * S + s) * G + g of a play
    tokens_Q: jax.Array  # int32, trained tokens, 0 where masked
    real_Q: jax.Array  # bool, the sequence exists: it counts in the denominators, masked or not
    temperature_Q: jax.Array  # float32, of the distribution that was sampled
    returns_NSGA: jax.Array  # float32
    valid_NSGA: jax.Array  # bool, played without fault
    faults_NSGA: jax.Array  # bool, the environment broke it
    lengths_NSG: jax.Array  # int32, reply tokens of plain plays
    slots_N: jax.Array  # int32, -1 for padding
    slot_M: jax.Array  # int32, -1 where refused
    fixed_M: jax.Array  # float32
    penalty_M: jax.Array  # float32
    skill_M: jax.Array  # int32
    valid_M: jax.Array  # bool, the draft exists and was judged
    reset_P: jax.Array  # bool, the slot holds a new environment
    skill_P: jax.Array  # int32, its skill


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made:
    """A batch and what went into it."""

    batch: Batch
    counts: collections.Counter  # generated = trained_designer + trained_agent + masked_<reason>
    rows: int  # B
    real_share: float  # of the token slots


def build(
    episodes: Sequence[records.Episode],
    credits: Sequence[DraftCredit],
    *,
    slots: Sequence[int],
    fresh: Mapping[int, int],
    pool_slots: int,
    shape: TableShape,
    config: BatchConfig,
    mesh: jax.sharding.Mesh,
    agent_temperature: float = 1.0,
) -> Made:
    """Pack an iteration and put it on the mesh.

    Args:
      episodes: of both arms; indices refer to the table that was drawn.
      credits: drafts whose credit is due.
      slots: pool slot of each row of the table.
      fresh: slots that got a new environment since the last batch, with the index of its skill;
        the update forgets the old one before it counts plays and pays drafts.
      pool_slots: P.
      agent_temperature: the plays were sampled at.
    Raises:
      ValueError: what was given does not fit the tables, or a play occurs twice.
    """
    _check(episodes, credits, slots, fresh, pool_slots, shape)
    tables = _returns(episodes, shape) | _drafts(credits, shape) | _slots(slots, fresh, pool_slots)
    tables["slots_N"] = _padded(slots, shape.environments, -1, np.int32)
    sequences, masked = _sequences(episodes, credits, tables, shape, config)
    table = _sequence_table(sequences, masked, credits, episodes, shape, agent_temperature)
    kept = [s for s in sequences if masked.get(s.place) is None and any(s.trained)]
    counts = collections.Counter(f"masked_{reason}" for reason in masked.values())
    counts["masked_hinted"] += sum(e.arm == records.HINTED for e in episodes)
    roles = {s.place: s.role for s in kept}.values()
    counts["trained_designer"] = sum(role == records.DESIGNER for role in roles)
    counts["trained_agent"] = sum(role == records.AGENT for role in roles)
    counts["generated"] = len(episodes) + len(credits)
    rows = packing.pack(kept, config.row_tokens, lambda needed: bucket(needed, config))
    made = Batch(
        **jax.device_put(rows, sharding.batch_sharding(mesh)),
        **jax.device_put(tables | table, sharding.replicated(mesh)),
    )
    height = len(rows["tokens_BT"])
    real = sum(len(s.ids) for s in kept) / (height * config.row_tokens)
    return Made(batch=made, counts=counts, rows=height, real_share=real)


def _check(episodes, credits, slots, fresh, pool_slots, shape: TableShape) -> None:
    if len(slots) > shape.environments or len(credits) > shape.drafts:
        raise ValueError(
            f"{len(slots)} environments and {len(credits)} drafts do not fit tables of "
            f"{shape.environments} and {shape.drafts}; enlarge the table shape."
        )
    places = [*slots, *fresh, *(c.slot for c in credits)]
    if any(not -1 <= place < pool_slots for place in places):
        raise ValueError(f"slots {places} must lie in -1..{pool_slots - 1}; enlarge pool.slots.")
    seen = collections.Counter((e.environment, e.seed_index, e.play, e.arm) for e in episodes)
    limits = (len(slots), shape.seeds, shape.plays, len(records.ARMS))
    for key, times in seen.items():
        if times > 1 or any(not 0 <= k < limit for k, limit in zip(key, limits, strict=True)):
            raise ValueError(
                f"episode (environment, seed, play, arm)={key} occurs {times} times in a table of "
                f"{limits}; each play must occur once and inside."
            )


def _returns(episodes, shape: TableShape) -> dict[str, np.ndarray]:
    """Lay returns, validity and faults out by environment, seed, play and arm."""
    sizes = (shape.environments, shape.seeds, shape.plays, len(records.ARMS))
    returns, valid, faults = (
        np.zeros(sizes, np.float32),
        np.zeros(sizes, bool),
        np.zeros(sizes, bool),
    )
    lengths = np.zeros(sizes, np.int32)
    for e in episodes:
        key = (e.environment, e.seed_index, e.play, e.arm)
        sound = e.fault == "" and math.isfinite(e.value)
        returns[key], valid[key] = (e.value if sound else 0.0), sound
        faults[key] = not sound and e.fault not in ("infra", "too_long")
        lengths[key] = sum(len(turn.reply.ids) for turn in e.turns)
    return {
        "returns_NSGA": returns,
        "valid_NSGA": valid,
        "faults_NSGA": faults,
        "lengths_NSG": lengths[..., records.PLAIN],
    }


def _drafts(credits, shape: TableShape) -> dict[str, np.ndarray]:
    size = shape.drafts
    return {
        "slot_M": _padded([c.slot for c in credits], size, -1, np.int32),
        "fixed_M": _padded([c.fixed for c in credits], size, 0.0, np.float32),
        "penalty_M": _padded([c.penalty for c in credits], size, 0.0, np.float32),
        "skill_M": _padded([_skill_index(c.draft.skill) for c in credits], size, 0, np.int32),
        "valid_M": _padded([not (c.unchecked or c.paused) for c in credits], size, False, bool),
    }


def _skill_index(name: str) -> int:
    """Number a skill within its setting."""
    found = [skills.index(name) for skills in records.SKILLS_OF.values() if name in skills]
    if not found:
        raise ValueError(f"skill {name!r} is in none of records.SKILLS_OF; add it there.")
    return found[0]


def _slots(slots, fresh: Mapping[int, int], pool_slots: int) -> dict[str, np.ndarray]:
    reset, skill = np.zeros(pool_slots, bool), np.zeros(pool_slots, np.int32)
    for slot, index in fresh.items():
        reset[slot], skill[slot] = True, index
    return {"reset_P": reset, "skill_P": skill}


def _sequences(
    episodes, credits, tables, shape: TableShape, config: BatchConfig
) -> tuple[list[packing.Sequence], dict[int, str]]:
    """Turn drafts and plain plays into token sequences, and name those that are not trained."""
    sequences, masked = [], {}
    for m, c in enumerate(credits):
        reply = c.draft.reply
        turns = [records.Turn(observed_ids=c.draft.prompt_ids, reply=reply, action="", reward=0.0)]
        sequences += packing.join(m, turns, records.DESIGNER)
        if c.unchecked or c.paused:
            masked[m] = "unchecked" if c.unchecked else "paused"
    flat = _flat_groups(tables["returns_NSGA"], tables["valid_NSGA"])
    for e in episodes:
        if e.arm != records.PLAIN:
            continue
        place = shape.drafts + _play_index(e, shape)
        sequences += packing.join(place, e.turns, records.AGENT, config.mask_malformed)
        if e.fault == "infra":
            masked[place] = "infra_fault"
        elif e.fault == "too_long":
            masked[place] = "too_long"
        elif not tables["valid_NSGA"][e.environment, e.seed_index, e.play, e.arm]:
            masked[place] = "environment_fault"
        elif config.drop_truncated and e.truncated:
            masked[place] = "truncated"
        elif config.drop_flat_groups and flat[e.environment, e.seed_index]:
            masked[place] = "no_spread"
    for s in sequences:
        if s.place not in masked and len(s.ids) > config.row_tokens:
            masked[s.place] = "too_long"
    trained = {s.place for s in sequences if any(s.trained)}
    replied = {s.place for s in sequences if s.replied}
    for place in {s.place for s in sequences} - trained - masked.keys():
        masked[place] = "malformed" if place in replied else "empty"
    return sequences, masked


def _flat_groups(returns, valid) -> np.ndarray:
    """Find the (environment, seed) groups whose valid plain returns are all equal."""
    plain, counted = returns[..., records.PLAIN], valid[..., records.PLAIN]
    low = np.where(counted, plain, np.inf).min(-1)
    return ~(low < np.where(counted, plain, -np.inf).max(-1))


def _play_index(e: records.Episode, shape: TableShape) -> int:
    return (e.environment * shape.seeds + e.seed_index) * shape.plays + e.play


def _sequence_table(
    sequences, masked, credits, episodes, shape: TableShape, agent_temperature: float
) -> dict[str, np.ndarray]:
    plays = shape.environments * shape.seeds * shape.plays
    size = shape.drafts + plays
    tokens, real = np.zeros(size, np.int32), np.zeros(size, bool)
    temperature = np.full(size, agent_temperature, np.float32)
    temperature[: shape.drafts] = 1.0
    for m, c in enumerate(credits):
        temperature[m] = c.temperature
    for s in sequences:
        real[s.place] = True
        if masked.get(s.place) in (None, "no_spread"):
            tokens[s.place] += sum(s.trained)
    roles = np.full(size, records.AGENT, np.int32)
    roles[: shape.drafts] = records.DESIGNER
    index = np.concatenate([np.arange(shape.drafts), np.arange(plays)]).astype(np.int32)
    return {
        "roles_Q": roles,
        "index_Q": index,
        "tokens_Q": tokens,
        "real_Q": real,
        "temperature_Q": temperature,
    }


def bucket(rows: int, config: BatchConfig) -> int:
    """Choose B: the smallest allowed number of rows that holds `rows`.

    Raises:
      ValueError: `batch.rows` is given and its largest is too small.
    """
    if config.rows:
        fitting = [size for size in config.rows if size >= rows]
        if not fitting:
            raise ValueError(
                f"the batch needs {rows} rows of {config.row_tokens} tokens and batch.rows ends at "
                f"{config.rows[-1]}; add a larger one."
            )
        return fitting[0]
    units = max(math.ceil(rows / config.rows_multiple), 1)
    step = max(2 ** (units.bit_length() - 4), 1)  # an eighth of the power of two below
    return math.ceil(units / step) * step * config.rows_multiple


def _padded(values, size: int, fill, dtype) -> np.ndarray:
    padded = np.full(size, fill, dtype)
    padded[: len(values)] = values
    return padded
