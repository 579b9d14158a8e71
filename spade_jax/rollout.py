"""Play episodes: both arms, all live plays at once, one function.

In: a table of environments with seeds. Out: one `Episode` per (environment, seed, arm, play).
One sandbox process serves all plays of a group. What a program does wrong is an outcome: an
exception or a broken contract costs its episode, the end of a process the plays still alive in it,
and nothing costs the run.
Source: SPADE (arXiv:2608.19197) section 4; differs in that both arms share seeds, limits and code.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from spade_jax import hosting, probe, records


@dataclasses.dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """How many plays an iteration has, how long they are, and how they share processes."""

    environments: int = 24  # N, drawn per iteration
    seeds: int = 2  # S, instances of each environment
    plays: int = 8  # G, plays of each instance in the plain arm
    hinted_plays: int = 4  # plays of each instance in the hinted arm, 0 switches the arm off
    max_turns: int = 1  # replies of one episode at most
    max_tokens: int = 32  # of one reply
    context_tokens: int = 256  # of one episode
    temperature: float = 1.0  # above 0: the update divides by it
    history: Literal["appended", "rendered"] = "appended"  # or prompts anew, thinking left out
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
        if not self.temperature > 0:
            raise ValueError(
                f"rollout.temperature={self.temperature}: the update divides by it, and greedy "
                "plays of a group are all the same. Set it above 0, 1 for the policy as it is."
            )
        for name in ("environments", "seeds", "max_turns", "max_tokens", "processes"):
            if getattr(self, name) < 1:
                raise ValueError(f"rollout.{name}={getattr(self, name)}: set it to at least 1.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Plays to make in one environment from one seed."""

    environment: records.Environment
    row: int  # n, index of the environment in the table
    seed_index: int  # s
    seed: int
    plays: tuple[int, int]  # per arm


def table(
    environments: Sequence[records.Environment], seeds_NS: np.ndarray, plays: tuple[int, int]
) -> list[Group]:
    """List the groups of a table: every environment from each of its seeds, plays per arm alike."""
    return [
        Group(environment=environment, row=n, seed_index=s, seed=int(seed), plays=plays)
        for n, environment in enumerate(environments)
        for s, seed in enumerate(seeds_NS[n])
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """What the room needs from outside."""

    open: Callable[[records.Environment, int], Any]  # (environment, seed) -> sandbox session
    generate: Callable[[list, list], list[records.Reply]]  # (prompts, seeds) -> replies
    start: Callable[..., tuple[int, ...]]  # as `machine.Machine.start_play`: a whole prompt
    extend: Callable[[str, str], tuple[int, ...]]  # (observation, role) -> ids after a reply
    text_of: Callable[[records.Reply], str]
    action_of: Callable[[str], str]
    show_hint: Callable[..., Any]  # (environment, program's hint, solution) -> `hint.Verdict`
    malformed: Callable[[str], bool] = lambda action: False  # a tool call that cannot be read
    role_of: Callable[[str], str] = lambda action: "user"  # who answers an action


@dataclasses.dataclass(frozen=True, kw_only=True)
class Played:
    """What the room hands out."""

    episodes: list[records.Episode]
    hint_refusals: collections.Counter  # reason -> groups whose hinted arm was left out
    dropped: int  # hinted plays left out with them; plays at fault stay in `episodes`
    leaks_N: dict[int, float]  # row of the table -> share of its groups whose hint told the answer;
    # rows without a group that was asked for its hint are absent
    transcripts: list[tuple[str, str]]  # (first observation, reply texts) in episode order
    processes: int  # that hosted plays; one that replaced another does not count


@dataclasses.dataclass
class _Play:
    group: Group
    number: int  # of its group
    arm: int
    play: int  # 0 .. G-1; _PROBE for the play that is only asked for the hint
    start: probe.Start
    key: tuple  # process that hosts it
    seeds_T: Sequence[int] = ()  # sampler seed of each turn
    prompt_ids: tuple[int, ...] = ()
    pending_ids: tuple[int, ...] = ()
    observation: str = ""
    opening: tuple = ()  # what `World.start` wrote the first prompt from
    exchanges: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)  # if rendered
    turns: list[records.Turn] = dataclasses.field(default_factory=list)
    value: float = 0.0
    fault: str = ""
    detail: str = ""
    truncated: bool = False
    live: bool = True
    left_out: bool = False  # its hint may not be shown
    replies: list[str] = dataclasses.field(default_factory=list)


_PROBE = -1
_ANSWER = 400  # characters of an observation that a turn keeps


def play(
    groups: Sequence[Group],
    world: World,
    config: RolloutConfig,
    rng: np.random.Generator,
    mine: Callable[[Group], bool] = lambda group: True,
) -> Played:
    """Play every group to its end.

    Args:
      rng: stream of sampler seeds; the numbers drawn do not depend on what happens in play.
      mine: which groups this process plays; seeds are drawn for all.
    Raises:
      nothing for faults of programs or of the sandbox: they are in `Episode.fault`.
    """
    plays, probes = _lay_out(groups, config, rng)
    plays, probes = ([p for p in part if mine(p.group)] for part in (plays, probes))
    helps: dict[int, probe.Help] = {}  # by number of the group
    for wave in _waves(plays, config.processes):
        _play_wave(wave, probes, world, config, helps)
    kept = [p for p in plays if not p.left_out]
    refused = sorted({p.number for p in plays if p.left_out})
    return Played(
        episodes=[_episode(p) for p in kept],
        hint_refusals=collections.Counter(helps[number].reason for number in refused),
        dropped=len(plays) - len(kept),
        leaks_N=_leaks(groups, helps),
        transcripts=[(p.observation, "\n> ".join(p.replies)) for p in kept],
        processes=len({p.key for p in plays}),
    )


def _leaks(groups: Sequence[Group], helps: dict[int, probe.Help]) -> dict[int, float]:
    told = collections.defaultdict(list)
    for number, shown in sorted(helps.items()):
        if shown.broken is None:
            told[groups[number].row].append(shown.reason == probe.LEAKS)
    return {row: sum(leaks) / len(leaks) for row, leaks in told.items()}


def _lay_out(groups, config, rng) -> tuple[list[_Play], list[_Play]]:
    """List all plays, and one probe for each group with a hinted arm."""
    plays, probes = [], []
    members = collections.Counter()

    def place(group, number, arm, index, seeds_T, key) -> _Play:
        members[key] += 1
        start = probe.Start(
            index=members[key] - 1,
            seed=int(group.seed),
            max_turns=min(group.environment.max_turns, config.max_turns),
        )
        return _Play(
            group=group, number=number, arm=arm, play=index, start=start, key=key, seeds_T=seeds_T
        )

    for number, group in enumerate(groups):
        for arm, count in enumerate(group.plays):
            for index in range(count):
                key = _process_key(config.isolation, number, group, arm, index)
                seeds_T = rng.integers(0, 2**32, size=config.max_turns, dtype=np.uint32)
                plays.append(place(group, number, arm, index, seeds_T, key))
        if group.plays[records.HINTED]:
            key = _process_key(config.isolation, number, group, records.HINTED, 0)
            probes.append(place(group, number, records.HINTED, _PROBE, (), key))
    return plays, probes


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


def _play_wave(
    plays, probes, world: World, config: RolloutConfig, helps: dict[int, probe.Help]
) -> None:
    first = {p.key: p.group for p in reversed(plays)}
    hosts = hosting.Hosts(lambda key: world.open(first[key].environment, int(first[key].seed)))
    try:
        for p in plays:
            hosts.start(p.key)
        _begin(plays, [p for p in probes if p.key in first], hosts, world, helps)
        for turn in range(config.max_turns):
            live = [p for p in plays if p.live]
            if live:
                _take_turn(live, turn, hosts, world, config)
        for p in plays:
            p.truncated |= p.live
            p.live = False
    finally:
        hosts.close()


def _begin(plays, probes, hosts, world: World, helps: dict[int, probe.Help]) -> None:
    """Load and reset every play, ask each group for its hint, and write the first prompts."""
    messages = [hosting.Message(key=p.key, requests=probe.opening(p.start)) for p in plays]
    messages += [hosting.Message(key=p.key, requests=probe.questions(p.start)) for p in probes]
    answers = hosts.ask(messages)
    for p, outcomes in zip(probes, answers[len(plays) :], strict=True):
        show = functools.partial(world.show_hint, p.group.environment)
        helps[p.number] = probe.read(outcomes, show)
    _try_hints(plays, [p for p in probes if helps[p.number].tries], hosts, helps)
    for p, outcomes in zip(plays, answers[: len(plays)], strict=True):
        _set_off(p, outcomes, world, helps)


def _try_hints(plays, probes, hosts, helps: dict[int, probe.Help]) -> None:
    """Refuse hints whose own words win at once: one message for each process that has any."""
    keys = {p.key for p in probes}
    messages = [
        hosting.Message(key=p.key, requests=probe.attempts(p.start, helps[p.number].tries))
        for p in probes
    ]
    messages += [  # the plays that live there ask nothing, but a lost process must repeat them
        hosting.Message(key=p.key, requests=(), history=probe.opening(p.start))
        for p in plays
        if p.key in keys
    ]
    for p, outcomes in zip(probes, hosts.ask(messages), strict=False):
        helps[p.number] = probe.judge(helps[p.number], outcomes)


def _set_off(p: _Play, outcomes, world: World, helps: dict[int, probe.Help]) -> None:
    """Write the first prompt of one play, or leave it out where its hint may not be shown."""
    for outcome in outcomes:
        if outcome.status != "ok":
            _blame(p, outcome)
            return
    begun = outcomes[1].value
    observation = hosting.text(begun.get("observation"))
    if begun.get("contract") or observation is None:
        _break(p, "reset", begun)
        return
    hint = None
    if p.arm == records.HINTED:
        shown = helps[p.number]
        if shown.broken is not None:
            _blame(p, shown.broken)
            return
        if shown.hint is None:
            p.live, p.left_out = False, True
            return
        hint = shown.hint
    tools = outcomes[2].value.get("tools")
    tools = tools if isinstance(tools, list) and tools else None
    p.observation = observation if hint is None else f"{observation}\nHINT: {hint}"
    p.opening = (p.group.environment, observation, hint, tools)
    p.prompt_ids = p.pending_ids = tuple(world.start(*p.opening))


def _take_turn(live, turn: int, hosts, world: World, config: RolloutConfig) -> None:
    fits = []
    for p in live:
        if len(p.prompt_ids) + config.max_tokens > config.context_tokens:
            _overflow(p, turn, config)
        else:
            fits.append(p)
    if not fits:
        return
    replies = world.generate([p.prompt_ids for p in fits], [int(p.seeds_T[turn]) for p in fits])
    acting, messages = [], []
    for p, reply in zip(fits, replies, strict=True):
        text = world.text_of(reply)
        p.replies.append(text)
        action = world.action_of(text)
        taken = records.Turn(observed_ids=p.pending_ids, reply=reply, action=action, reward=0.0)
        marks = {"malformed": world.malformed(action), "rendered": bool(p.exchanges)}
        p.turns.append(dataclasses.replace(taken, **marks))
        if not reply.stopped:
            p.live, p.truncated = False, True
            continue
        acting.append(p)
        messages.append(
            hosting.Message(
                key=p.key,
                requests=[_step(p, action)],
                history=probe.opening(p.start) + [_step(p, past.action) for past in p.turns[:-1]],
            )
        )
    for p, outcomes in zip(acting, hosts.ask(messages), strict=True):
        _advance(p, outcomes[0], world, config)


def _overflow(p: _Play, turn: int, config: RolloutConfig) -> None:
    """End a play whose next reply might not fit; one that never had a turn says nothing."""
    p.live, p.truncated = False, turn > 0
    if p.truncated:
        return
    p.fault = "too_long"
    p.detail = (
        f"a first prompt of {len(p.prompt_ids)} tokens and a reply of {config.max_tokens} do not "
        f"fit rollout.context_tokens={config.context_tokens}"
    )


def _step(p: _Play, action: str) -> dict:
    return {"op": "step", "play": p.start.index, "action": action}


def _advance(p: _Play, outcome, world: World, config: RolloutConfig) -> None:
    """Fold the answer of one step into its play."""
    if outcome.status != "ok":
        _blame(p, outcome)
        return
    step = outcome.value
    reward, observation = hosting.number(step.get("reward")), hosting.text(step.get("observation"))
    terminated, truncated = step.get("terminated"), step.get("truncated")
    typed = type(terminated) is bool and type(truncated) is bool
    if step.get("contract") or reward is None or observation is None or not typed:
        _break(p, "step", step)
        return
    p.turns[-1] = dataclasses.replace(p.turns[-1], reward=reward, answer=observation[:_ANSWER])
    if terminated:
        p.live, p.value = False, min(1.0, max(-1.0, reward))
    elif truncated:
        p.live, p.truncated = False, True
    elif config.history == "rendered":
        role = world.role_of(p.turns[-1].action)
        p.exchanges.append((p.replies[-1], observation, role))
        p.prompt_ids = p.pending_ids = tuple(world.start(*p.opening, p.exchanges))
    else:
        p.pending_ids = tuple(world.extend(observation, world.role_of(p.turns[-1].action)))
        p.prompt_ids = p.prompt_ids + p.turns[-1].reply.ids + p.pending_ids


def _blame(p: _Play, outcome) -> None:
    p.live, p.fault = False, "infra" if outcome.status == "infra" else "environment"
    p.detail = f"{outcome.status}: {outcome.detail}"[:300]


def _break(p: _Play, op: str, answer: dict) -> None:
    """Note that a program's answer is not what the contract asks for."""
    p.live, p.fault = False, "environment"
    p.detail = f"{op}: {answer.get('contract') or 'a field has the wrong type'}"[:300]


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
