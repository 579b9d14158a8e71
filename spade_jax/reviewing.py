"""Carry the review out: choose plays, ask the policy, charge waiting drafts. See `review.py`.

In: what was just played. Out: counts; drafts that wait for their credit are marked as reviewed, and
those held for unsound owe the penalty. Verdicts are trained on by nobody.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from spade_jax import programs, records, review, seeds, story
from spade_jax.domains import domain


def apply(
    table: Sequence[records.Environment],
    slots: Sequence[int],
    episodes: Sequence[records.Episode],
    progress: Any,
    world: Any,
    config: Any,
    clock: story.Clock,
) -> review.Reviews:
    """Review each draft that waits for credit once, at the first plain play that came to an end.

    One whose program and play leave no room for a reply is counted, and tried again when it plays.

    Args:
      table: what was played, by row.
      slots: of the rows in the pool.
      progress: a `loop.Progress`; world: a `machine.Machine`; config: a `settings.RunConfig`.
    """
    if not config.review.penalty:
        return review.Reviews()
    waiting = progress.pool.waiting
    owed = {w.slot: i for i, w in enumerate(waiting) if w.slot >= 0 and not w.reviewed}
    plays: dict[int, records.Episode] = {}
    for e in episodes:
        if e.arm == records.PLAIN and not e.fault and slots[e.environment] in owed:
            plays.setdefault(e.environment, e)
    with clock.stage("review"):
        unsound = review.judge(
            [table[row] for row in plays],
            list(plays.values()),
            lambda e, play: world.chat.start(records.AGENT, domain.review_messages(e.source, play)),
            world.generate_together(
                progress.train.params,
                records.AGENT,
                config.review.temperature,
                config.review.max_tokens,
            ),
            lambda reply: programs.without_thinking(world.text_of(reply)),
            seeds.sampling_seeds(
                seeds.stream(config.seed, "review", progress.iteration), len(plays)
            ).tolist(),
        )
    for row, bad in zip(plays, unsound, strict=True):
        if bad is None:
            continue
        i = owed[slots[row]]
        charged = waiting[i].penalty + config.review.penalty * bad
        waiting[i] = dataclasses.replace(waiting[i], reviewed=True, penalty=charged)
    no_room = unsound.count(None)
    return review.Reviews(asked=len(plays) - no_room, unsound=unsound.count(True), no_room=no_room)
