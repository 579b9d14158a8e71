"""Run one program through every check that needs it to run.

In: program text that parses, a crew, the setting. Out: an `Outcome`. One sandbox process plays, a
second one repeats for determinism. What each check means stands in `validate.CHECKS`.
"""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np

from sandbox import records as sandbox_records
from spade_jax import casting, checks, players, programs, trial
from spade_jax.domains import domain as domain_lib

_OURS = (trial.INFRA, trial.LATE)  # says nothing of the program, so that it is tried again
CLOCK_SHIFT_SECONDS = 40 * 86_400.0 + 12_345.0  # of the second process, against the first


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of running one program."""

    finding: programs.Finding | None  # None where every check passed; then from class_name on
    processes: int  # that decided it; those of a first try that the sandbox lost do not count
    class_name: str = ""
    max_turns: int = 0
    has_solution: bool = False
    has_criteria: bool = False
    cheat_rate: float | None = None  # what the best scripted player earns on average; None: unasked


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Candidate:
    source: str
    digest: str


def examine(source: str, digest: str, crew, domain: domain_lib.Domain, config) -> Outcome:
    """Run a program's checks; again, once, where the sandbox failed or the program hardly ran.

    Args:
      source: the program, whose text passed.
      digest: of its syntax tree; its seeds come from it, so that it cannot foresee them.
      crew: runs programs; `crew.open(source, ...)` gives a session.
      config: a `validate.ValidateConfig`.
    """
    candidate = _Candidate(source=source, digest=digest)
    found = _try(candidate, crew, domain, config)
    if found.finding is not None and found.finding.reason in _OURS:
        found = _try(candidate, crew, domain, config)
    if found.finding is not None and found.finding.reason == trial.LATE:
        late = dataclasses.replace(found.finding, reason="timeout")
        return dataclasses.replace(found, finding=late)
    return found


def _try(candidate: _Candidate, crew, domain, config) -> Outcome:
    """Run a program's checks once."""
    cheat_rate, processes = None, 1
    rng = np.random.default_rng([config.seed, int(candidate.digest[:12], 16)])
    seeds = [int(seed) for seed in rng.integers(1, 2**31, size=config.seeds + config.more_seeds)]
    names = casting.scripted_names(domain)
    if "degenerate" in config.off:
        names = ("constant", players.SHORTCUT)
    cast = casting.cast(domain, seeds[: config.seeds], names, config.cheat_turns)
    with contextlib.closing(_open(candidate, crew, domain, config, seeds[0], 0)) as session:
        for group in (cast.probes, cast.solvers, cast.scripted):
            finding = trial.play_all(session, group, cap=_cap(domain, config))
            if finding is None and group is cast.probes and domain.uses_tools:
                finding = checks.tools(group)
            finding = finding or _sound(group, config)
            if finding is not None:
                return Outcome(finding=finding, processes=processes)
            trial.drop(session, group)
        if "nondeterministic" not in config.off:
            finding = _replayed(candidate, crew, domain, config, seeds[0], cast)
            processes += 1
        for name, check in (
            ("constant_task", checks.varied),
            ("criteria_error", checks.criteria_evaluable),
            ("criteria_true_at_reset", checks.criteria_false),
            ("unwinnable", checks.winnable),
            ("answer_visible", checks.answer_hidden),
        ):
            if finding is None and name not in config.off:
                finding = check(cast)
        if finding is None and "degenerate" not in config.off:
            finding, cheat_rate = _degenerate(session, cast, domain, config, seeds[config.seeds :])
    if finding is not None:
        return Outcome(finding=finding, processes=processes, cheat_rate=cheat_rate)
    first = cast.probes[0]
    return Outcome(
        finding=None,
        processes=processes,
        class_name=first.class_name,
        max_turns=first.max_turns,
        has_solution=first.has_solution,
        has_criteria=first.criteria is not None,
        cheat_rate=cheat_rate,
    )


def _cap(domain: domain_lib.Domain, config) -> int:
    """Turns that an environment is given, the same as in play."""
    return min(domain.max_turns, config.max_turns or domain.max_turns)


def _open(candidate: _Candidate, crew, domain, config, seed: int, hash_seed: int):
    return crew.open(
        candidate.source,
        modules=dict(domain.modules),
        prelude=domain.prelude,
        seed=seed,
        hash_seed=hash_seed,
        clock_shift_seconds=CLOCK_SHIFT_SECONDS * hash_seed,
        limits=sandbox_records.Limits(
            wall_seconds=config.wall_seconds,
            cpu_seconds=config.wall_seconds,
            memory_bytes=config.memory_bytes,
        ),
    )


def _sound(plays, config) -> programs.Finding | None:
    """Judge what holds of every play: the range of rewards, and an end."""
    finding = None
    if "reward_range" not in config.off:
        finding = checks.reward_range(plays)
    if finding is None and "never_ends" not in config.off:
        finding = checks.ends(plays)
    return finding


def _replayed(candidate, crew, domain, config, seed: int, cast) -> programs.Finding | None:
    """Repeat plays in a second process, with another hash seed and another clock."""
    plays = [*cast.probes, *cast.solvers[: config.replayed]]
    with contextlib.closing(_open(candidate, crew, domain, config, seed, 1)) as session:
        finding = trial.replay(session, plays, cap=_cap(domain, config))
    if finding is not None and finding.reason not in _OURS + ("nondeterministic",):
        detail = f"fails only in the second process: {finding.detail}"[:300]
        return programs.Finding(reason="nondeterministic", detail=detail)
    return finding


def _degenerate(
    session, cast, domain, config, seeds
) -> tuple[programs.Finding | None, float | None]:
    """Refuse what a player wins without thinking.

    Who wins too often on the first seeds plays fresh ones, and those alone decide: small answers
    make luck common, and the constant was chosen after seeing the first seeds. A player that
    knows the answer has no luck: it is decided at once.

    Returns:
      the finding, and what the best player earns on average; None where play itself failed.
    """
    bound = domain.max_cheat_rate if config.max_cheat_rate is None else config.max_cheat_rate
    rates = checks.cheat_rates(cast.scripted)
    suspects = [name for name, rate in rates.items() if rate > bound]
    if suspects and seeds and not set(suspects) & set(players.INFORMED):
        again = casting.scripted(domain, seeds, suspects, config.cheat_turns, cast)
        finding = trial.play_all(session, again, cap=_cap(domain, config))
        finding = finding or _sound(again, config)
        if finding is not None:
            return finding, None
        rates = checks.cheat_rates(again)
    worst = max(rates, key=lambda name: rates[name])
    if rates[worst] <= bound:
        return None, rates[worst]
    detail = f"the {worst} player earns {rates[worst]:.2f} on average; at most {bound:g}"
    return programs.Finding(reason="degenerate", detail=detail), rates[worst]
