"""What a run does when its safeguards ask for it; which answers there are stands in `safeguards`.

In: the answer, `Progress`, the configuration. Out: a pool with other environments. Exploring and
pausing are done where drafts are written and credited (`generation.py`, `loop.py`).
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from spade_jax import checkpoint, library, memory, pool, records, safeguards


class CollapsedError(RuntimeError):
    """Self-play has collapsed, and the configuration asks to stop then."""


def prepare(progress, config, answer: safeguards.Answer) -> list[int]:
    """Do what is done once to the pool before the next generation; give the slots filled anew.

    Raises:
      CollapsedError: the answer is to stop.
    """
    if "stop" in answer.once:
        raise CollapsedError(
            f"self-play has collapsed: {', '.join(answer.causes)}. The newest checkpoint is whole; "
            "see health/* in metrics.jsonl and samples/, and set --config.safeguards.CAUSE to "
            "another answer to go on."
        )
    current = progress.pool
    if "retire" in answer.once:
        current.banned_P |= current.blind_P > config.safeguards.most_blind_wins
        current.retired_P |= current.banned_P
    return _reseed(progress, config) if "reseed" in answer.once else []


def keep_healthy(progress, store: checkpoint.Store | None, config) -> None:
    """Save parameters and optimiser of a healthy iteration now and then, for a roll back."""
    t = progress.iteration
    due = t % config.safeguards.healthy_every == 0 and progress.health.state == "healthy"
    if store is not None and due and t not in store.steps():
        store.save(t, progress.train, {"iteration": t})


def roll_back(progress, store: checkpoint.Store | None, answer: safeguards.Answer) -> str:
    """Take parameters and optimiser back to the last healthy iteration, where that is asked.

    Pool, curriculum and counters stay: what was measured is still true. Drafts that wait keep the
    log-probabilities they were sampled with, and the importance weight accounts for the change.

    Returns:
      what was done, for people; empty where nothing was asked.
    """
    if "roll_back" not in answer.once or store is None:
        return ""
    steps = [step for step in store.steps() if step <= progress.iteration]
    if not steps:
        return "roll back asked, but no healthy checkpoint was kept yet"
    kept, _ = store.restore(steps[-1], progress.train)
    progress.train = dataclasses.replace(
        progress.train, params=kept.params, opt_state=kept.opt_state
    )
    return f"parameters and optimiser rolled back to iteration {steps[-1]}"


def _reseed(progress, config) -> list[int]:
    """Bring back what taught best and left the pool, or else seed environments; none twice."""
    current = progress.pool
    wanted = min(config.design.drafts, config.pool.slots)
    gone = memory.select(current.memory, current.memory.regret_H > 0)
    band = memory.select(
        gone, (gone.win_rate_H >= memory.BAND[0]) & (gone.win_rate_H <= memory.BAND[1])
    )
    best = np.argsort(-band.regret_H, kind="stable")
    taught = (current.archive.read(int(number)) for number in band.number_H[best])
    seeds = library.load(config.seed_environments, (config.setting,), ("train",))
    begun = (
        library.environment(seed, uid=-1 - i, max_turns=config.rollout.max_turns)
        for i, seed in enumerate(seeds)
    )
    living = {pool.environment(current, int(slot)).digest for slot in pool.alive(current)}
    found: dict[str, records.Environment] = {}
    for candidate in itertools.chain(taught, begun):
        if len(found) == wanted:
            break
        if candidate.digest not in living:
            found.setdefault(candidate.digest, candidate)
    return [slot for slot in pool.admit(current, [*found.values()], config.pool) if slot >= 0]
