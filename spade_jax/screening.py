"""Carry the screen by the policy out: ask or play, move verdicts. See `screen.py`.

In: verdicts of validation. Out: the same, where sound drafts that the policy cannot solve are
refused. Plays of the screen are trained on by nobody and stand in no statistic.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from spade_jax import programs, records, rollout, screen, seeds, validate
from spade_jax.domains import domain


def apply(
    verdicts: list[validate.Verdict],
    progress: Any,
    world: Any,
    config: Any,
    rng: np.random.Generator,
    cost: screen.Cost,
) -> list[validate.Verdict]:
    """Screen the sound ones of a generation's drafts.

    Args:
      progress: a `loop.Progress`; its parameters play.
      world: a `machine.Machine`.
      config: a `settings.RunConfig`.
      cost: is added to.
    """
    sound = [v.environment for v in verdicts if v.environment is not None]
    if not sound:
        return verdicts
    by = {"judgement": _ask, "play": _play}[config.screen.by]
    sound, findings = by(sound, progress.train.params, world, config, rng, cost)
    cost.screened += len(sound)
    cost.refused += sum(f is not None and f.reason == screen.REASON for f in findings)
    told = {e.uid: (e, f) for e, f in zip(sound, findings, strict=True)}
    return [v if v.environment is None else _move(v, *told[v.uid]) for v in verdicts]


def _move(
    verdict: validate.Verdict, environment: records.Environment, finding: programs.Finding | None
) -> validate.Verdict:
    mark = "pass"
    if finding is not None:
        mark = "fail" if finding.reason == screen.REASON else "not reached"
    return dataclasses.replace(
        verdict,
        environment=environment if finding is None else None,
        finding=finding,
        checks=verdict.checks | {screen.REASON: mark},
    )


def _ask(sound, params, world, config, rng, cost: screen.Cost):
    def prompt_of(e: records.Environment):
        return world.chat.start(records.AGENT, domain.screen_messages(world.domain, e.source))

    findings = screen.judge(
        sound,
        prompt_of,
        world.generate_together(
            params, records.AGENT, config.screen.temperature, config.screen.max_tokens
        ),
        lambda reply: programs.without_thinking(world.text_of(reply)),
        seeds.sampling_seeds(rng, len(sound)),
    )
    cost.replies += len(sound)
    return sound, findings


def _play(sound, params, world, config, rng, cost: screen.Cost):
    """Play with hints; instances whose hint may not be shown are played without."""
    if config.hint.source == "policy":
        sound, refusals = world.write_hints(sound, params, rng)
        cost.hint_refusals += refusals
    seeds_NS = seeds.episode_seeds(rng, (len(sound), config.rollout.seeds))
    groups = rollout.table(sound, seeds_NS, (0, config.screen.plays))

    def play(asked: list[rollout.Group]) -> list[records.Episode]:
        limits = config.rollout
        played = world.play(asked, params, limits.temperature, limits, rng)
        cost.replies += sum(len(e.turns) for e in played.episodes)
        cost.processes += played.processes
        return played.episodes

    episodes = play(groups)
    begun = {(e.environment, e.seed_index) for e in episodes}
    unhinted = [
        dataclasses.replace(group, plays=(config.screen.plays, 0))
        for group in groups
        if (group.row, group.seed_index) not in begun
    ]
    if unhinted:
        episodes += play(unhinted)
    return sound, screen.count_wins(episodes, len(sound), config.screen)
