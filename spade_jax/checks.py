"""The checks that need an environment's plays: pure functions from plays to what is wrong.

In: the plays that `trial` made. Out: a `Finding`, or None where the check passes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from spade_jax import casting, leaks, players, programs, trial

MAX_REWARD = 10.0
WIN = 1.0


def reward_range(plays: Sequence[trial.Play]) -> programs.Finding | None:
    """Every reward lies in [-10, 10]."""
    for play in plays:
        for step in play.steps:
            if abs(step.reward) > MAX_REWARD:
                detail = f"reward {step.reward:g} for action {step.action[:60]!r}; at most 10"
                return programs.Finding(reason="reward_range", detail=detail)
    return None


def ends(plays: Sequence[trial.Play]) -> programs.Finding | None:
    """Every play that had all its turns ends by itself."""
    for play in plays:
        if not play.ended and len(play.steps) >= play.max_turns:
            detail = f"neither terminated nor truncated after {play.max_turns} turns"
            return programs.Finding(reason="never_ends", detail=detail)
    return None


def tools(plays: Sequence[trial.Play]) -> programs.Finding | None:
    """A tool-use environment names its tools."""
    for play in plays:
        for tool in play.tools or [None]:
            function = tool.get("function") if isinstance(tool, dict) else None
            if not isinstance(function, dict) or not isinstance(function.get("name"), str):
                detail = "get_tools() must list function schemas with names"
                return programs.Finding(reason="contract", detail=detail)
    return None


def varied(cast: casting.Cast) -> programs.Finding | None:
    """Not every seed gives the same task: what is seen, what wins, or what happens differs."""
    constants = [play for play in cast.scripted if play.player == "constant"]
    told = {
        (
            solver.observation,
            solver.first_solution,
            *((s.observation, s.reward) for s in play.steps),
        )
        for solver, play in zip(cast.solvers, constants, strict=True)
    }
    if len(told) == 1:
        detail = f"{len(cast.solvers)} seeds give one task"
        return programs.Finding(reason="constant_task", detail=detail)
    return None


def criteria_evaluable(cast: casting.Cast) -> programs.Finding | None:
    """Every success criterion can be evaluated right after reset."""
    for play in cast.probes + cast.solvers:
        for i, value in enumerate(play.criteria or ()):
            if type(value) is not bool:
                detail = f"criterion {i + 1}, seed {play.seed}: {str(value)[:200]}"
                return programs.Finding(reason="criteria_error", detail=detail)
    return None


def criteria_false(cast: casting.Cast) -> programs.Finding | None:
    """No success criterion holds right after reset."""
    for play in cast.probes + cast.solvers:
        for i, value in enumerate(play.criteria or ()):
            if value is True:
                detail = f"criterion {i + 1} holds before anything was done, seed {play.seed}"
                return programs.Finding(reason="criteria_true_at_reset", detail=detail)
    return None


def winnable(cast: casting.Cast) -> programs.Finding | None:
    """Playing the program's own solution ends with reward 1; nothing to check without one."""
    for play in cast.solvers:
        if not play.has_solution:
            continue
        if play.solution_fault or play.first_solution is None:
            detail = play.solution_fault or "solution() returns no text"
            return programs.Finding(reason="unwinnable", detail=detail[:300])
        if not play.steps or not play.steps[-1].terminated or play.steps[-1].reward != WIN:
            last = play.steps[-1] if play.steps else None
            earned = f"{last.reward:g}, terminated={last.terminated}" if last else "nothing"
            actions = [step.action[:40] for step in play.steps[-3:]]
            detail = f"seed {play.seed}: solution() earns {earned}; last actions {actions}"
            return programs.Finding(reason="unwinnable", detail=detail[:300])
    return None


def answer_hidden(cast: casting.Cast) -> programs.Finding | None:
    """What wins cannot be read off a fixed place of the text, before any turn.

    Sought are the next action of each turn, the first one, and one that wins at once although the
    program's own way there is longer. A task that one answer wins must not tell it after a wrong
    answer either.
    """
    solvers = [play for play in cast.solvers if play.value == WIN]
    firsts = [(play.observation, _bare(play.steps[0].action)) for play in solvers]
    jumps = [p for p in cast.scripted if p.player == players.SHORTCUT and p.value == WIN]
    ends = leaks.without_common([_bare(play.steps[-1].action) for play in jumps])
    jumped = list(zip([play.observation for play in jumps], ends, strict=True))
    moves = [
        (_seen_before(play, turn), _bare(step.action))
        for play in solvers
        for turn, step in enumerate(play.steps)
    ]
    told = []
    if solvers and all(len(play.steps) == 1 for play in solvers):
        told = [
            (play.steps[0].observation, _bare(play.first_solution))
            for play in cast.probes
            if len(play.steps) > 1 and play.first_solution is not None
        ]
    for pairs in (moves, firsts, jumped, told):
        place = leaks.place_of_answer(*_columns(pairs))
        if place is not None:
            detail = f"the answer stands {place}"[:300]
            return programs.Finding(reason="answer_visible", detail=detail)
    return None


def cheat_rates(plays: Sequence[trial.Play]) -> dict[str, float]:
    """Mean return, at least 0, of each scripted player that must not win."""
    values: dict[str, list[float]] = {}
    for play in plays:
        if play.player == players.SHORTCUT:
            continue
        values.setdefault(play.player, []).append(max(0.0, play.value))
    return {player: sum(earned) / len(earned) for player, earned in values.items()}


def _seen_before(play: trial.Play, turn: int) -> str:
    return play.steps[turn - 1].observation if turn else play.observation


def _columns(pairs: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [text for text, _ in pairs], [answer for _, answer in pairs]


def _bare(solution: str) -> str:
    match = re.fullmatch(r"\s*\\boxed\s*\{(.*)\}\s*", solution, re.DOTALL)
    return match[1] if match else solution
