"""Play episodes: both arms, all live plays at once, one function.

In: a table of environments with seeds. Out: one `Episode` per (environment, seed, arm, play).
One sandbox process serves all plays of a group; what a program does wrong is an outcome and costs
its episode, never the run.
Source: SPADE (arXiv:2608.19197) section 4; differs in that both arms share seeds, limits and code.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from spade_jax import records


@dataclasses.dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    environments: int = 24  # N, drawn per iteration
    seeds: int = 2  # S, instances of each environment
    plays: int = 8  # G, plays of each instance in the plain arm
    hinted_plays: int = 4  # plays of each instance in the hinted arm, 0 switches the arm off
    max_turns: int = 1  # replies of one episode at most
    max_tokens: int = 32  # of one reply
    context_tokens: int = 256  # of one episode
    temperature: float = 1.0
    isolation: Literal["group", "episode", "environment"] = "group"
    processes: int = 64  # sandbox processes alive at once

    def __post_init__(self):
        if self.plays < 2:
            raise ValueError(
                f"rollout.plays={self.plays}: a group needs a baseline. Set rollout.plays >= 2."
            )
        if not 0 <= self.hinted_plays <= self.plays:
            raise ValueError(
                f"rollout.hinted_plays={self.hinted_plays} must lie in 0..plays={self.plays}."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Plays to make in one environment from one seed."""

    environment: records.Environment
    row: int  # n, index of the environment in the table
    seed_index: int  # s
    seed: int
    plays: tuple[int, int]  # per arm


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """What the room needs from outside."""

    open: Callable[[records.Environment, int], Any]  # (environment, seed) -> sandbox session
    generate: Callable[[list, list], list[records.Reply]]  # (prompts, seeds) -> replies
    start: Callable[[records.Environment, str, str | None, list | None], tuple[int, ...]]
    extend: Callable[[str], tuple[int, ...]]  # observation -> ids appended after a reply
    text_of: Callable[[records.Reply], str]
    action_of: Callable[[str], str]
    show_hint: Callable[[records.Environment, str | None, str | None], tuple[str | None, str]]
    # (environment, hint of its program, its solution) -> (hint to show or None, reason)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Played:
    """What the room hands out."""

    episodes: list[records.Episode]
    hint_refusals: collections.Counter  # reason -> groups whose hinted arm was left out
    dropped: int  # hinted plays left out with them
    transcripts: list[tuple[str, str]]  # (first observation, reply texts) in episode order


@dataclasses.dataclass
class _Play:
    group: Group
    arm: int
    play: int
    index: int  # id of the play inside its process
    key: tuple  # process that hosts it
    seeds_T: Sequence[int]  # sampler seed of each turn
    prompt_ids: tuple[int, ...] = ()
    pending_ids: tuple[int, ...] = ()
    observation: str = ""
    turns: list[records.Turn] = dataclasses.field(default_factory=list)
    value: float = 0.0
    fault: str = ""
    detail: str = ""
    truncated: bool = False
    live: bool = True
    replies: list[str] = dataclasses.field(default_factory=list)


def play(
    groups: Sequence[Group], world: World, config: RolloutConfig, rng: np.random.Generator
) -> Played:
    """Play every group to its end.

    Args:
      rng: stream of sampler seeds; the numbers drawn do not depend on what happens in play.
    Raises:
      nothing for faults of programs or of the sandbox: they are in `Episode.fault`.
    """
    plays = _lay_out(groups, config, rng)
    refusals = collections.Counter()
    kept: list[_Play] = []
    waves = _waves(plays, config.processes)
    for wave in waves:
        kept.extend(_play_wave(wave, world, config, refusals))
    return Played(
        episodes=[_episode(p) for p in kept],
        hint_refusals=refusals,
        dropped=len(plays) - len(kept),
        transcripts=[(p.observation, "\n> ".join(p.replies)) for p in kept],
    )


def _lay_out(groups, config, rng) -> list[_Play]:
    plays = []
    members = collections.Counter()
    for number, group in enumerate(groups):
        for arm, count in enumerate(group.plays):
            for index in range(count):
                key = _process_key(config.isolation, number, group, arm, index)
                seeds_T = rng.integers(0, 2**32, size=config.max_turns, dtype=np.uint32)
                plays.append(
                    _Play(group=group, arm=arm, play=index, index=members[key], key=key,
                          seeds_T=seeds_T)
                )  # fmt: skip
                members[key] += 1
    return plays


def _process_key(isolation: str, number: int, group: Group, arm: int, index: int) -> tuple:
    if isolation == "environment":
        return (group.row,)
    if isolation == "group":
        return (number,)
    return (number, arm, index)


def _waves(plays: list[_Play], processes: int) -> list[list[_Play]]:
    """Cut the plays so that no wave needs more than `processes` sandbox processes."""
    by_key: dict[tuple, list[_Play]] = {}
    for p in plays:
        by_key.setdefault(p.key, []).append(p)
    keys = list(by_key)
    return [
        [p for key in keys[i : i + processes] for p in by_key[key]]
        for i in range(0, len(keys), processes)
    ]


def _play_wave(plays, world: World, config: RolloutConfig, refusals) -> list[_Play]:
    sessions = {}
    try:
        for p in plays:
            if p.key not in sessions:
                sessions[p.key] = world.open(p.group.environment, p.group.seed)
        plays = _begin(plays, sessions, world, refusals)
        for turn in range(config.max_turns):
            live = [p for p in plays if p.live]
            if not live:
                break
            _take_turn(live, turn, sessions, world, config)
        for p in plays:
            p.truncated |= p.live
            p.live = False
        return plays
    finally:
        for session in sessions.values():
            session.close()


def _begin(plays, sessions, world: World, refusals) -> list[_Play]:
    """Load and reset every play, ask each group for its hint, and write the first prompts."""
    requests = []
    for p in plays:
        seed = int(p.group.seed)
        cap = p.group.environment.max_turns
        requests.append(
            [
                {"op": "load", "play": p.index, "seed": seed, "max_turns": cap,
                 "pacing": "respect"},
                {"op": "reset", "play": p.index, "seed": seed},
                {"op": "tools", "play": p.index},
                *([{"op": "hint", "play": p.index}, {"op": "solution", "play": p.index}]
                  if p.arm == records.HINTED else []),
            ]
        )  # fmt: skip
    answers = _ask(plays, requests, sessions, world)
    kept = []
    for p, outcomes in zip(plays, answers, strict=True):
        if _set_off(p, outcomes, world, refusals):
            kept.append(p)
    return kept


def _set_off(p: _Play, outcomes, world: World, refusals) -> bool:
    """Write the first prompt of one play; False leaves it out (its hint may not be shown)."""
    for outcome in outcomes[:3]:
        if outcome.status != "ok":
            _blame(p, outcome)
            return True
    observation = outcomes[1].value.get("observation")
    if outcomes[1].value.get("contract") or not isinstance(observation, str):
        p.live, p.fault = False, "environment"
        p.detail = f"reset: {outcomes[1].value.get('contract')}"
        return True
    hint = None
    if p.arm == records.HINTED:
        own = outcomes[3].value.get("hint") if outcomes[3].status == "ok" else None
        answer = outcomes[4].value.get("solution") if outcomes[4].status == "ok" else None
        hint, reason = world.show_hint(p.group.environment, own, answer)
        if hint is None:
            if p.play == 0:
                refusals[reason] += 1
            return False
    tools = outcomes[2].value.get("tools")
    p.observation = observation if hint is None else f"{observation}\nHINT: {hint}"
    p.prompt_ids = tuple(world.start(p.group.environment, observation, hint, tools))
    p.pending_ids = p.prompt_ids
    return True


def _take_turn(live, turn: int, sessions, world: World, config: RolloutConfig) -> None:
    fits = []
    for p in live:
        if len(p.prompt_ids) + config.max_tokens > config.context_tokens:
            p.live, p.truncated = False, True
        else:
            fits.append(p)
    replies = world.generate([p.prompt_ids for p in fits], [int(p.seeds_T[turn]) for p in fits])
    acting, requests = [], []
    for p, reply in zip(fits, replies, strict=True):
        text = world.text_of(reply)
        p.replies.append(text)
        action = world.action_of(text)
        p.turns.append(
            records.Turn(observed_ids=p.pending_ids, reply=reply, action=action, reward=0.0)
        )
        if not reply.stopped:
            p.live, p.truncated = False, True
            continue
        acting.append(p)
        requests.append([{"op": "step", "play": p.index, "action": action}])
    for p, outcomes in zip(acting, _ask(acting, requests, sessions, world), strict=True):
        _advance(p, outcomes[0], world)


def _advance(p: _Play, outcome, world: World) -> None:
    """Fold the answer of one step into its play."""
    if outcome.status != "ok":
        _blame(p, outcome)
        return
    step = outcome.value
    reward = step.get("reward")
    sound = isinstance(reward, int | float) and math.isfinite(reward)
    if step.get("contract") or not sound or not isinstance(step.get("observation"), str):
        p.live, p.fault, p.detail = False, "environment", f"step: {step.get('contract')}"
        return
    p.turns[-1] = dataclasses.replace(p.turns[-1], reward=float(reward))
    if step["terminated"]:
        p.live, p.value = False, min(1.0, max(-1.0, float(reward)))
    elif step["truncated"]:
        p.live, p.truncated = False, True
    else:
        p.pending_ids = tuple(world.extend(step["observation"]))
        p.prompt_ids = p.prompt_ids + p.turns[-1].reply.ids + p.pending_ids


def _ask(plays, requests, sessions, world: World) -> list[list]:
    """Send one batch per process, all processes at once; replay a lost process once."""
    answers = _exchange(plays, requests, sessions)
    lost = {p.key for p, got in zip(plays, answers, strict=True) if got[0].status == "infra"}
    if not lost:
        return answers
    # A process that the sandbox lost is not the program's doing: start another, repeat what its
    # plays did so far (programs are deterministic), and ask again. A second loss is masked.
    for key in lost:
        sessions[key].close()
        first = next(p for p in plays if p.key == key)
        sessions[key] = world.open(first.group.environment, first.group.seed)
    again = [i for i, p in enumerate(plays) if p.key in lost]
    history = [_history(plays[i]) for i in again]
    repeated = _exchange(
        [plays[i] for i in again],
        [past + requests[i] for i, past in zip(again, history, strict=True)],
        sessions,
    )
    for i, past, got in zip(again, history, repeated, strict=True):
        answers[i] = got[len(past) :]
    return answers


def _history(p: _Play) -> list[dict]:
    """Repeat what one play sent before its newest request."""
    if not p.turns:
        return []
    seed = int(p.group.seed)
    cap = p.group.environment.max_turns
    past = [
        {"op": "load", "play": p.index, "seed": seed, "max_turns": cap, "pacing": "respect"},
        {"op": "reset", "play": p.index, "seed": seed},
    ]
    return past + [{"op": "step", "play": p.index, "action": t.action} for t in p.turns[:-1]]


def _exchange(plays, requests, sessions) -> list[list]:
    by_key: dict[tuple, list[int]] = {}
    for i, p in enumerate(plays):
        by_key.setdefault(p.key, []).append(i)
    futures = {
        key: sessions[key].submit([request for i in members for request in requests[i]])
        for key, members in by_key.items()
    }
    answers: list[list] = [[] for _ in plays]
    for key, members in by_key.items():
        outcomes = futures[key].result()
        start = 0
        for i in members:
            answers[i] = outcomes[start : start + len(requests[i])]
            start += len(requests[i])
    return answers


def _blame(p: _Play, outcome) -> None:
    p.live = False
    p.fault = "infra" if outcome.status == "infra" else "environment"
    p.detail = f"{outcome.status}: {outcome.detail}"[:300]


def _episode(p: _Play) -> records.Episode:
    return records.Episode(
        environment=p.group.row,
        seed_index=p.group.seed_index,
        play=p.play,
        arm=p.arm,
        seed=int(p.group.seed),
        turns=tuple(p.turns),
        value=0.0 if p.fault else p.value,
        fault=p.fault,
        detail=p.detail,
        truncated=p.truncated,
        observation=p.observation,
    )
