"""Packing: turns of a play or a draft become sequences of ids, and these rows of one length.

In: turns as token ids. Out: rows of T tokens that hold several sequences behind each other, told
apart by segment ids; only what the policy itself wrote is trained. A play is one sequence, or,
where every turn's prompt was written anew, one for each turn: these share the play's place, and so
its advantage and its weight in the loss.
"""

from __future__ import annotations

import dataclasses
import typing

import numpy as np

from spade_jax import records


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sequence:
    """Tokens of one draft, one play, or one turn of a play whose prompts were written anew."""

    place: int  # q
    ids: list[int]
    trained: list[int]
    logps: list[float]
    role: int
    replied: int  # tokens of replies, trained or not


def join(
    place: int, turns: typing.Sequence[records.Turn], role: int, skip_malformed: bool = False
) -> list[Sequence]:
    """Put turns behind each other: observed tokens untrained, replies trained to their last id.

    A turn whose prompt was rendered anew begins a sequence of its own.

    Args:
      place: q, in the table of sequences.
      skip_malformed: replies whose tool call could not be read are not trained either.
    Raises:
      ValueError: ids and log-probabilities differ in number, or nothing precedes the first reply.
    """
    begins = [i for i, turn in enumerate(turns) if turn.rendered and i] + [len(turns)]
    cuts = zip([0, *begins], begins, strict=False)
    return [_join(place, turns[first:last], role, skip_malformed) for first, last in cuts]


def _join(place, turns, role: int, skip_malformed: bool) -> Sequence:
    ids, trained, logps = [], [], []
    for turn in turns:
        if len(turn.reply.ids) != len(turn.reply.logps):
            raise ValueError(
                f"a reply has {len(turn.reply.ids)} ids and {len(turn.reply.logps)} "
                "log-probabilities; the sampler must give one for each id."
            )
        kept = int(not (skip_malformed and turn.malformed))
        observed, replied = len(turn.observed_ids), len(turn.reply.ids)
        ids += [*turn.observed_ids, *turn.reply.ids]
        trained += [0] * observed + [kept] * replied
        logps += [0.0] * observed + list(turn.reply.logps)
    if turns and turns[0].reply.ids and not turns[0].observed_ids:
        raise ValueError(
            f"a sequence of role {records.ROLES[role]} starts with a reply: nothing predicts its "
            "first token. Give the first turn at least one observed token."
        )
    replied = sum(len(turn.reply.ids) for turn in turns)
    return Sequence(place=place, ids=ids, trained=trained, logps=logps, role=role, replied=replied)


def pack(
    sequences: typing.Sequence[Sequence], row_tokens: int, height: typing.Callable[[int], int]
) -> dict[str, np.ndarray]:
    """Lay sequences behind each other in rows, each with its segment id and its own positions.

    Args:
      height: rows that are needed -> rows B that are made.
    Returns:
      the arrays of `batch.Batch` whose names end in _BT.
    """
    ordered = sorted(sequences, key=lambda s: s.place)
    rows = fit([len(s.ids) for s in ordered], row_tokens)
    shape = (height(len(rows)), row_tokens)
    whole = ("tokens_BT", "positions_BT", "segments_BT", "roles_BT", "sequences_BT")
    packed = {name: np.zeros(shape, np.int32) for name in whole}
    packed |= {name: np.zeros(shape, np.float32) for name in ("mask_BT", "logps_BT")}
    for row, members in enumerate(rows):
        start = 0
        for segment, s in enumerate((ordered[i] for i in members), 1):
            span = (row, slice(start, start + len(s.ids)))
            packed["tokens_BT"][span] = s.ids
            packed["positions_BT"][span] = np.arange(len(s.ids))
            packed["segments_BT"][span] = segment
            packed["roles_BT"][span] = s.role
            packed["sequences_BT"][span] = s.place
            packed["mask_BT"][span] = s.trained
            packed["logps_BT"][span] = s.logps
            start += len(s.ids)
    return packed


def fit(lengths: typing.Sequence[int], row_tokens: int) -> list[list[int]]:
    """Put sequences into rows: first fit, longest first, equal lengths in their order.

    Returns:
      the members of each row, as places in `lengths`.
    """
    room = np.full(len(lengths) + 1, row_tokens)
    rows: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        row = int(np.argmax(room >= lengths[i]))
        if row == len(rows):
            rows.append([])
        rows[row].append(i)
        room[row] -= lengths[i]
    return rows
