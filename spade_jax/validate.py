"""Decide which drafts become environments, and name why the others do not.

In: drafts, a crew that runs programs, the setting. Out: `Environment` or `Refusal` for each draft.
Checks on text and syntax run here; everything else runs in the sandbox, see `examination`. A fault
of ours is no refusal: its reason is `INFRA`, and nobody pays. Source: SPADE (arXiv:2608.19197)
section 7; most checks are ours (the public implementation loads the program and takes three steps).
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from spade_jax import examination, fingerprints, neighbours, programs, records, trial
from spade_jax.domains import domain as domain_lib

INFRA = trial.INFRA
NOT_APPLICABLE = "nothing to check"  # mark of a check whose subject the program lacks
CHECKS = {  # reason -> what it means, in the order of the checks
    "no_program": "the reply holds no program",
    "too_long": "the program is longer than the cap",
    "syntax": "the program cannot be parsed",
    "no_env_class": "no class whose name ends in Env",
    "missing_method": "the class lacks a method of the contract",
    "forbidden_import": "an import outside the allow-list of the setting",
    "load_error": "running the module or constructing the class fails",
    "reset_error": "reset fails",
    "step_error": "step fails on some action",
    "hint_error": "hint fails or returns no text",
    "contract": "a returned value has the wrong type",
    "reward_range": "a reward is not finite or outside [-10, 10]",
    "observation_size": "an observation is too large",
    "output_limit": "it prints or returns too much",
    "timeout": "it takes too long",
    "memory": "it takes too much memory",
    "never_ends": "it does not end within max_turns",
    "nondeterministic": "the same seed and actions give something else in another process",
    "constant_task": "every seed gives the same task",
    "criteria_error": "a success criterion cannot be evaluated after reset",
    "criteria_true_at_reset": "a success criterion already holds after reset",
    "unwinnable": "playing its own solution does not win with reward 1",
    "answer_visible": "the answer can be read off the observation",
    "degenerate": "a player that does not think wins too often",
    "duplicate": "the same program in other words is already there",
    "unsolved": "the policy cannot solve it, or holds it for unsolvable",  # see screen.py
}
SCREENED = "unsolved"  # decided by the policy after all others, where config.screen asks it
SWITCHABLE = (
    "too_long",
    "forbidden_import",
    "reward_range",
    "never_ends",
    "nondeterministic",
    "constant_task",
    "criteria_error",
    "criteria_true_at_reset",
    "unwinnable",
    "answer_visible",
    "degenerate",
    "duplicate",
)
_WATCHED = (  # looked at with every answer of a running program
    "step_error", "hint_error", "contract", "reward_range", "observation_size", "output_limit",
    "timeout", "memory",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValidateConfig:
    """What a program must stand: limits, instances, and which checks are made."""

    seeds: int = 10  # instances that solutions and scripted players play
    more_seeds: int = 30  # played in addition by a player that won too often on the first
    replayed: int = 3  # solution plays repeated in the second process, beside the probes
    max_cheat_rate: float | None = None  # of a scripted player; None takes the setting's
    cheat_turns: int | None = None  # replies a scripted player has; None takes the setting's
    max_source: int = 60_000  # characters of a program
    off: tuple[str, ...] = ()  # checks that are switched off, names of SWITCHABLE
    more_imports: tuple[str, ...] = ()  # modules allowed beside those of the setting
    wall_seconds: float = 10.0  # one message to a program may take
    memory_bytes: int = 256 << 20  # of one process, as much as in play
    max_turns: int | None = None  # replies of one play at most; None takes the setting's
    concurrency: int = 8  # drafts in the sandbox at once
    seed: int = 0  # of the instances; each program gets its own, which it cannot foresee

    def __post_init__(self):
        for name in self.off:
            if name not in SWITCHABLE:
                raise ValueError(
                    f"validate.off={name!r} is not a check that can be switched off; "
                    f"choose among {', '.join(SWITCHABLE)}."
                )
        if self.seeds < 2:
            raise ValueError(f"validate.seeds={self.seeds}: tasks must differ. Set seeds >= 2.")
        if self.max_turns is not None and self.max_turns < 1:
            raise ValueError(
                f"validate.max_turns={self.max_turns}: set it to rollout.max_turns, at least 1."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """What came of one draft, check by check."""

    uid: int
    environment: records.Environment | None  # None where it is refused
    finding: programs.Finding | None  # why, None where it is accepted
    cheat_rate: float | None = None  # see examination.Outcome; None where it did not come to it
    processes: int = 0  # see examination.Outcome; 0 where another draft has the same program
    checks: dict[str, str]  # reason -> "pass", "fail", "off", "not reached" or NOT_APPLICABLE


Spread = Callable[[list, Callable[[list], list], type], list]  # (items, work, type of a result)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Candidate:
    """A draft's program whose text passed."""

    source: str
    digest: str
    signature_K: np.ndarray


def validate(
    drafts: Sequence[records.Draft],
    crew,
    domain: domain_lib.Domain,
    config: ValidateConfig,
    known: neighbours.Neighbours | None = None,
) -> list[records.Environment | records.Refusal]:
    """Turn drafts into environments or refusals, in the order of the drafts.

    Args:
      crew: runs programs; `crew.open(source, ...)` gives a session.
      known: what a new program must differ from.
    Returns:
      a refusal of reason `INFRA` means that the sandbox failed, twice: mask it, punish nobody.
    """
    results = []
    for verdict in examine(drafts, crew, domain, config, known):
        if verdict.environment is not None:
            results.append(verdict.environment)
        else:
            finding = verdict.finding
            results.append(
                records.Refusal(uid=verdict.uid, reason=finding.reason, detail=finding.detail)
            )
    return results


def examine(
    drafts: Sequence[records.Draft],
    crew,
    domain: domain_lib.Domain,
    config: ValidateConfig,
    known: neighbours.Neighbours | None = None,
    spread: Spread = lambda items, work, kind: work(items),
) -> list[Verdict]:
    """Judge drafts; like `validate`, with the outcome of every check.

    Args:
      spread: lets several processes run a share of the programs each; see `hosts.Hosts.spread`.
    """
    known = known or neighbours.Neighbours()
    read_M = [read(draft, domain, config) for draft in drafts]
    candidates = [found for found in read_M if isinstance(found, _Candidate)]
    outcomes = _run(candidates, crew, domain, config, known, spread)
    taken, counted, accepted, verdicts = set(), set(), [], []
    for draft, found in zip(drafts, read_M, strict=True):
        outcome = found
        if isinstance(found, _Candidate):
            there = found.digest in taken or found.digest in known.digests
            copied = there and "duplicate" not in config.off
            outcome = _copied(found) if copied else outcomes[found.source]
        if isinstance(outcome, programs.Finding):
            verdicts.append(_refused(draft, outcome, config))
            continue
        if outcome.finding is not None:
            verdict = _refused(draft, outcome.finding, config)
        else:
            verdict = _accepted(found, draft, outcome, domain, config, known, accepted)
            accepted.append(found)
            taken.add(found.digest)
        processes = 0 if found.source in counted else outcome.processes
        counted.add(found.source)
        verdicts.append(
            dataclasses.replace(verdict, cheat_rate=outcome.cheat_rate, processes=processes)
        )
    return verdicts


def read(
    draft: records.Draft, domain: domain_lib.Domain, config: ValidateConfig
) -> _Candidate | programs.Finding:
    """Check a draft's text and syntax; nothing runs."""
    if draft.source is None or not draft.source.strip():
        return programs.Finding(reason="no_program", detail="no fenced program in the reply")
    if len(draft.source) > config.max_source and "too_long" not in config.off:
        detail = f"{len(draft.source)} characters; at most {config.max_source}"
        return programs.Finding(reason="too_long", detail=detail)
    source = programs.repair_braces(draft.source)
    allowed = domain.allowed_imports | set(config.more_imports)
    for finding in programs.static_findings(source, allowed):
        if finding.reason not in config.off:
            return finding
    tree = programs.parse(source)
    return _Candidate(
        source=source,
        digest=fingerprints.digest(tree),
        signature_K=fingerprints.signature(tree),
    )


def _run(candidates, crew, domain, config: ValidateConfig, known, spread: Spread) -> dict:
    """Run each distinct program once; gives source -> what came of it.

    Of programs with one digest the first runs alone: where it is accepted, the others are copies of
    it and need not run. Nothing that is known already runs.
    """
    outcomes: dict[str, examination.Outcome] = {}
    written = {candidate.digest for candidate in candidates}
    settled = set() if "duplicate" in config.off else written & known.digests.keys()
    with concurrent.futures.ThreadPoolExecutor(max_workers=config.concurrency) as pool:

        def run(share: list[_Candidate]) -> list[examination.Outcome]:
            return list(
                pool.map(
                    lambda c: examination.examine(c.source, c.digest, crew, domain, config), share
                )
            )

        for first_only in (True, False):
            wave: dict[str, _Candidate] = {}
            digests = set(settled)
            for candidate in candidates:
                if candidate.digest not in digests and candidate.source not in outcomes:
                    wave[candidate.source] = candidate
                    if first_only:
                        digests.add(candidate.digest)
            found = spread(list(wave.values()), run, examination.Outcome)
            for candidate, outcome in zip(wave.values(), found, strict=True):
                outcomes[candidate.source] = outcome
                if "duplicate" not in config.off and outcome.finding is None:
                    settled.add(candidate.digest)
    return outcomes


def _copied(candidate: _Candidate) -> programs.Finding:
    detail = f"digest {candidate.digest} is already there"
    return programs.Finding(reason="duplicate", detail=detail)


def _accepted(
    candidate: _Candidate,
    draft: records.Draft,
    ran: examination.Outcome,
    domain,
    config,
    known,
    accepted,
) -> Verdict:
    near = neighbours.nearest(known, candidate.signature_K)
    if accepted:
        mates_MK = np.stack([other.signature_K for other in accepted])
        near = max(near, fingerprints.similarity(candidate.signature_K, mates_MK).max())
    environment = records.Environment(
        uid=draft.uid,
        source=candidate.source,
        setting=domain.name,
        skill=draft.skill,
        difficulty=draft.difficulty,
        generation=draft.generation,
        class_name=ran.class_name,
        digest=candidate.digest,
        signature=fingerprints.to_text(candidate.signature_K),
        max_turns=ran.max_turns,
        similarity=float(near),
    )
    marks = _marks(None, config)
    for name, has in (
        ("criteria_error", ran.has_criteria),
        ("criteria_true_at_reset", ran.has_criteria),
        ("unwinnable", ran.has_solution),
        ("answer_visible", ran.has_solution),
    ):
        if not has and marks[name] == "pass":
            marks[name] = NOT_APPLICABLE
    return Verdict(
        uid=draft.uid,
        environment=environment,
        finding=None,
        checks=marks,
    )


def _refused(draft: records.Draft, finding: programs.Finding, config: ValidateConfig) -> Verdict:
    return Verdict(
        uid=draft.uid, environment=None, finding=finding, checks=_marks(finding.reason, config)
    )


def _marks(failed: str | None, config: ValidateConfig) -> dict[str, str]:
    """Mark every check. While a program runs, several are watched at once: a fault leaves those
    that stand beside it undecided. A copy does not run at all. The policy is asked elsewhere, about
    what is accepted here."""
    names = list(CHECKS)
    last = "load_error" if failed == "duplicate" else failed
    reached = len(names) if failed is None else names.index(last) if last in names else 0
    marks = {}
    for i, name in enumerate(names):
        passed = i < reached and not (failed in _WATCHED and name in _WATCHED)
        off = name in config.off or (name == SCREENED and failed is None)
        marks[name] = "off" if off else "pass" if passed else "not reached"
    if failed in marks:
        marks[failed] = "fail"
    return marks
