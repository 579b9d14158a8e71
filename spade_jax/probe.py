"""Ask a group for its hint, and try whether the words of the hint alone win.

In: outcomes of requests to the process that hosts the group. Out: a `Help`. A probe is a play that
nobody plays: hint() and solution() are asked of it, and actions taken from the hint are tried in
fresh plays of its own number, so that none of this can change a play of either arm.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from spade_jax import hosting

LEAKS = "leaks_answer"  # the reason that the gate of hints gives too
WIN = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """How one play begins."""

    index: int  # id of the play inside its process
    seed: int
    max_turns: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Help:
    """What the hinted arm of a group is shown."""

    hint: str | None = None
    reason: str = ""  # why none may be shown
    tries: tuple[str, ...] = ()  # actions that must not win at once
    broken: Any = None  # outcome that ended the question, None where it was answered


def opening(start: Start) -> list[dict]:
    """Requests that start a play, the same in both arms."""
    return [*_begin(start), {"op": "tools", "play": start.index}]


def questions(start: Start) -> list[dict]:
    """Requests that ask for a group's hint, and for the answer that it must not tell."""
    asked = [{"op": op, "play": start.index} for op in ("hint", "solution", "drop")]
    return [*_begin(start), *asked]


def read(outcomes: Sequence[Any], show: Callable[[str | None, str | None], Any]) -> Help:
    """Choose the hint from what was answered.

    Args:
      outcomes: of `questions`.
      show: (hint of the program, its solution) -> verdict of the gate, see `hint.Verdict`.
    """
    loaded, begun, own, answer = outcomes[:4]
    for outcome, allowed in ((loaded, ()), (begun, ()), (own, ("error",)), (answer, ("error",))):
        if outcome.status not in ("ok", *allowed):
            return Help(broken=outcome)
    if answer.status == "error":
        return Help(reason="unchecked")
    computed = hosting.text(own.value.get("hint")) if own.status == "ok" else None
    verdict = show(computed, hosting.text(answer.value.get("solution")))
    return Help(hint=verdict.hint, reason=verdict.reason, tries=verdict.tries)


def attempts(start: Start, tries: Sequence[str]) -> list[dict]:
    """Requests that try each action as the first one of a fresh play."""
    requests = []
    for action in tries:
        step = {"op": "step", "play": start.index, "action": action}
        requests += [*_begin(start), step, {"op": "drop", "play": start.index}]
    return requests


def judge(given: Help, outcomes: Sequence[Any]) -> Help:
    """Take the hint back where an action of its words won.

    Args:
      outcomes: of `attempts`. An exception in one is no win; the end of the process is a fault.
    """
    for outcome in outcomes:
        if outcome.status not in ("ok", "error"):
            return Help(broken=outcome)
        reward = hosting.number(outcome.value.get("reward")) if outcome.status == "ok" else None
        if reward is not None and reward >= WIN and outcome.value.get("terminated") is True:
            return Help(reason=LEAKS)
    return given


def _begin(start: Start) -> list[dict]:
    load = {"op": "load", "play": start.index, "seed": start.seed}
    return [
        load | {"max_turns": start.max_turns, "pacing": "respect"},
        {"op": "reset", "play": start.index, "seed": start.seed},
    ]
