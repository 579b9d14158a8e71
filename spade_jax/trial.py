"""Play an environment with fixed and scripted players inside one sandbox process.

In: an open session and the plays to make. Out: `Play` records, or the first thing that went wrong.
All plays advance in lock-step, so that a trial costs one message per turn, not one per step. What
comes out of the box is untrusted: types and sizes are checked here, values judged in `checks`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from spade_jax import hosting, programs

INFRA = "infra"  # reason of a fault that is ours: nobody is refused for it
LATE = "late"  # reason of a deadline that passed though the program hardly ran; it is tried again
MAX_OBSERVATION = 20_000  # characters
_OWN_NAME = {"timeout": "timeout", "memory": "memory", "output_limit": "output_limit"}
_OP_FAULT = {
    "load": "load_error",
    "reset": "reset_error",
    "step": "step_error",
    "solution": "unwinnable",
    "hint": "hint_error",
    "tools": "contract",
    "criteria": "criteria_error",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One exchange."""

    action: str
    observation: str
    reward: float
    terminated: bool
    truncated: bool


@dataclasses.dataclass(kw_only=True)
class Play:
    """One play, as far as it got."""

    player: str  # "probe", "solution" or one of players.PLAYERS
    seed: int
    index: int  # id inside its process
    choose: Callable[[Play], str | None]  # the next action; None ends the play
    turns: int | None = None  # replies at most, None for the environment's own limit
    class_name: str = ""
    max_turns: int = 0
    observation: str = ""  # the first
    solution: str | None = None  # for the present state, None where the program has none
    has_solution: bool = False
    solution_fault: str = ""  # what solution() raised
    first_solution: str | None = None  # right after reset
    criteria: list[Any] | None = None  # right after reset, None where there are none
    tools: list[Any] | None = None  # schemas, None where there are none
    steps: list[Step] = dataclasses.field(default_factory=list)
    live: bool = True

    @property
    def newest(self) -> str:
        """Give the observation that was shown last."""
        return self.steps[-1].observation if self.steps else self.observation

    @property
    def value(self) -> float:
        """The return: the last reward clipped to [-1, 1] if terminated, else 0."""
        if not self.steps or not self.steps[-1].terminated:
            return 0.0
        return min(1.0, max(-1.0, self.steps[-1].reward))

    @property
    def ended(self) -> bool:
        """Say whether the last step ended the play."""
        return bool(self.steps) and (self.steps[-1].terminated or self.steps[-1].truncated)


def play_all(session, plays: Sequence[Play], *, cap: int) -> programs.Finding | None:
    """Play every play to its end; the plays are filled in place.

    Args:
      session: open sandbox session that hosts them.
      cap: turns that an environment may have at most.
    Returns:
      the first fault in order of the plays, None where all went well.
    """
    finding = _begin(session, plays, cap)
    while finding is None:
        finding = _turn(session, [play for play in plays if play.live])
        if not any(play.live for play in plays):
            break
    return finding


def replay(session, plays: Sequence[Play], *, cap: int) -> programs.Finding | None:
    """Repeat finished plays with the same seeds and actions, all in one message.

    Returns:
      a finding named nondeterministic where anything differs, another where the program fails,
      None where every observation, reward and flag is the same.
    """
    requests = []
    for play in plays:
        requests += [_load(play, cap), _ask(play, "reset", seed=play.seed)]
        requests += [_ask(play, "step", action=step.action) for step in play.steps]
    outcomes = iter(_exchange(session, requests))
    for play in plays:
        again = dataclasses.replace(play, steps=[], observation="")
        finding = _read_load(again, next(outcomes), cap) or _read_reset(again, next(outcomes))
        if finding is None and again.observation != play.observation:
            finding = _differs(play, 0, play.observation, again.observation)
        if finding is not None:
            return finding
        for turn, step in enumerate(play.steps):
            finding = _read_step(again, step.action, next(outcomes))
            if finding is None and again.steps[-1] != step:
                finding = _differs(play, turn + 1, step, again.steps[-1])
            if finding is not None:
                return finding
    return None


def drop(session, plays: Sequence[Play]) -> None:
    """Free what the program holds for finished plays; the plays keep what they saw."""
    _exchange(session, [_ask(play, "drop") for play in plays])


def _begin(session, plays: Sequence[Play], cap: int) -> programs.Finding | None:
    requests = []
    for play in plays:
        requests += [_load(play, cap), _ask(play, "reset", seed=play.seed)]
        requests += [_ask(play, op) for op in _ASKED.get(play.player, ())]
    outcomes = iter(_exchange(session, requests))
    for play in plays:
        finding = _read_load(play, next(outcomes), cap) or _read_reset(play, next(outcomes))
        for op in _ASKED.get(play.player, ()):
            finding = finding or _READERS[op](play, next(outcomes), op)
        if finding is not None:
            return finding
        play.first_solution = play.solution
    return None


def _turn(session, plays: Sequence[Play]) -> programs.Finding | None:
    """Advance every live play by one reply."""
    acting, requests = [], []
    for play in plays:
        action = play.choose(play)
        if action is None:
            play.live = False
            continue
        acting.append((play, action))
        requests += [_ask(play, "step", action=action)]
        if play.player == "solution":
            requests += [_ask(play, "solution")]
    outcomes = iter(_exchange(session, requests))
    for play, action in acting:
        finding = _read_step(play, action, next(outcomes))
        if play.player == "solution":
            answer = next(outcomes)
            if finding is None and not play.ended:
                finding = _read_solution(play, answer)
        if finding is not None:
            return finding
        limit = play.max_turns if play.turns is None else min(play.turns, play.max_turns)
        if play.ended or len(play.steps) >= limit:
            play.live = False
    return None


def _exchange(session, requests: list[dict]) -> list:
    """Send all requests, so many at once; the answers that are missing become None."""
    outcomes = []
    for part in hosting.cut(requests):
        answers = list(session.step(part))[: len(part)]
        outcomes += answers + [None] * (len(part) - len(answers))
    return outcomes


def _ask(play: Play, op: str, **values) -> dict:
    return {"op": op, "play": play.index, **values}


def _load(play: Play, cap: int) -> dict:
    return _ask(play, "load", seed=play.seed, max_turns=cap, pacing="respect")


def _fault(outcome, op: str) -> programs.Finding | None:
    """Name what a request that did not end well means; None for one that did."""
    if outcome is None or outcome.status == INFRA:
        detail = "no answer" if outcome is None else outcome.detail
        return programs.Finding(reason=INFRA, detail=f"{op}: {detail}"[:300])
    if outcome.status != "ok":
        reason = _OWN_NAME.get(outcome.status, _OP_FAULT[op])
        reason = LATE if hosting.starved(outcome) else reason
        detail = f"{op}: {outcome.detail or outcome.status}"
        return programs.Finding(reason=reason, detail=" ".join(detail.split())[:300])
    if not isinstance(outcome.value, dict):
        return _contract(op, "the answer is not a record")
    return None


def _contract(op: str, detail: object) -> programs.Finding:
    return programs.Finding(reason="contract", detail=f"{op}: {detail}"[:300])


def _read_load(play: Play, outcome, cap: int) -> programs.Finding | None:
    finding = _fault(outcome, "load")
    if finding is not None:
        return finding
    name, limit = outcome.value.get("class_name"), outcome.value.get("max_turns")
    play.class_name = name[:200] if isinstance(name, str) else ""
    play.max_turns = limit if type(limit) is int and 1 <= limit <= cap else cap
    return None


def _read_reset(play: Play, outcome) -> programs.Finding | None:
    finding = _fault(outcome, "reset")
    if finding is not None:
        return finding
    if outcome.value.get("contract"):
        return _contract("reset", outcome.value["contract"])
    observation = outcome.value.get("observation")
    if not isinstance(observation, str) or not observation.strip():
        return _contract("reset", "the observation is empty or no text")
    play.observation = observation
    return _too_large(observation)


def _read_step(play: Play, action: str, outcome) -> programs.Finding | None:
    finding = _fault(outcome, "step")
    if finding is not None:
        detail = f"{finding.detail} (action {action[:60]!r})"
        return dataclasses.replace(finding, detail=detail)
    value, reward = outcome.value, outcome.value.get("reward")
    number = type(reward) in (int, float) and math.isfinite(reward)
    if value.get("contract"):
        infinite = reward is None and "finite" in str(value["contract"])
        if infinite:
            return programs.Finding(reason="reward_range", detail=str(value["contract"])[:300])
        return _contract("step", value["contract"])
    flags = (value.get("terminated"), value.get("truncated"))
    if not number or not all(type(flag) is bool for flag in flags):
        return _contract("step", "reward or flags have the wrong type")
    observation = value.get("observation")
    if not isinstance(observation, str):
        return _contract("step", "the observation is no text")
    play.steps.append(
        Step(
            action=action,
            observation=observation,
            reward=float(reward),
            terminated=flags[0],
            truncated=flags[1],
        )
    )
    return _too_large(observation)


def _read_solution(play: Play, outcome, op: str = "solution") -> programs.Finding | None:
    """Note what the program would play; an exception in it is judged by the winnable check."""
    finding = _fault(outcome, op)
    if finding is not None and finding.reason == "unwinnable":
        play.has_solution, play.solution, play.solution_fault = True, None, finding.detail
        return None
    if finding is not None:
        return finding
    answer = outcome.value.get("solution")
    play.has_solution = outcome.value.get("present") is True
    play.solution = answer if isinstance(answer, str) else None
    return None


def _read_hint(play: Play, outcome, op: str) -> programs.Finding | None:
    finding = _fault(outcome, op)
    if finding is not None:
        return finding
    hint = outcome.value.get("hint")
    if hint is not None and not isinstance(hint, str):
        return programs.Finding(reason="hint_error", detail="hint() returns no text")
    return None


def _read_list(play: Play, outcome, op: str) -> programs.Finding | None:
    """Read what `tools` or `criteria` gives into the play's field of that name."""
    finding = _fault(outcome, op)
    if finding is not None:
        return finding
    listed = outcome.value.get(op)
    setattr(play, op, listed if isinstance(listed, list) else None)
    return None


def _too_large(observation: str) -> programs.Finding | None:
    if len(observation) <= MAX_OBSERVATION:
        return None
    detail = f"an observation of {len(observation)} characters; at most {MAX_OBSERVATION}"
    return programs.Finding(reason="observation_size", detail=detail)


_ASKED = {  # what is asked after reset, by player; the scripted ones only play
    "probe": ("solution", "hint", "tools", "criteria"),
    "solution": ("solution", "criteria"),
}
_READERS = {
    "solution": _read_solution,
    "hint": _read_hint,
    "tools": _read_list,
    "criteria": _read_list,
}


def _differs(play: Play, turn: int, first: object, second: object) -> programs.Finding:
    detail = f"seed {play.seed}, turn {turn}: {str(first)[:100]!r} became {str(second)[:100]!r}"
    return programs.Finding(reason="nondeterministic", detail=detail)
