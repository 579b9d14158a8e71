"""Score a policy on the seed environments: new instances of known families, and held-out families.

In: parameters and a machine. Out: solve rates with 95% intervals, per suite, skill and family. The
questions are the same at every evaluation of a run, so two evaluations can be compared in pairs.
"""

from __future__ import annotations

import collections
import dataclasses
import time
from typing import Any

import numpy as np

from spade_jax import library, machine, metrics, records, rollout, seeds, settings

SUITES = {"known": "train", "held_out": "held_out"}  # suite -> split of the seed environments


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """Result of one suite."""

    suite: str
    solved: int
    questions: int  # scored: faults are left out of them
    faults: int
    low: float  # 95% interval of the solve rate
    high: float
    by_skill: dict[str, tuple[int, int]]  # solved, questions
    by_family: dict[str, tuple[int, int]]
    answers: str  # one character a question, 1 solved, 0 not, x fault: for paired comparisons
    fault_details: tuple[str, ...]  # what the faults were, each once
    seconds: float

    @property
    def rate(self) -> float:
        """Give the share solved, of the questions without a fault; 0 where there are none."""
        return self.solved / max(self.questions, 1)


def run(
    world: machine.Machine,
    params: Any,
    config: settings.RunConfig,
    suites: tuple[str, ...] = tuple(SUITES),
) -> dict[str, Score]:
    """Play every question of every suite once, plain arm, one sandbox process per family.

    Raises:
      ValueError: a suite has no environments.
    """
    return {suite: _score(suite, world, params, config) for suite in suites}


def to_json(scores: dict[str, Score], iteration: int) -> dict:
    """One JSON-able record of an evaluation."""
    return {
        "iteration": iteration,
        "suites": {suite: dataclasses.asdict(score) for suite, score in scores.items()},
    }


def as_metrics(scores: dict[str, Score]) -> records.Metrics:
    """Name the scores as metrics."""
    named: records.Metrics = {}
    for suite, score in scores.items():
        named[f"eval/{suite}"] = score.rate
        named[f"eval/{suite}_half_width"] = (score.high - score.low) / 2
    if "held_out" in scores:
        for skill, (solved, questions) in scores["held_out"].by_skill.items():
            named[f"eval/skill_{metrics.slug(skill)}/solve_rate"] = solved / questions
    return named


def paired(before: str, after: str) -> tuple[float, float]:
    """Compare two evaluations of the same questions: change of the solve rate, 95% half width.

    Args:
      before: `Score.answers` of the first evaluation; after: of the second, same questions.
    Returns:
      mean difference and 1.96 standard errors of it, over questions scored both times.
    """
    pairs = [(int(a), int(b)) for a, b in zip(before, after, strict=True) if "x" not in (a, b)]
    gaps = np.array([b - a for a, b in pairs], np.float64)
    if len(gaps) < 2:
        return float(gaps.sum()), float("inf")
    return float(gaps.mean()), float(1.959964 * gaps.std(ddof=1) / np.sqrt(len(gaps)))


def _score(suite: str, world: machine.Machine, params: Any, config: settings.RunConfig) -> Score:
    begun = time.monotonic()
    programs = library.load(config.seed_environments, (config.setting,), (SUITES[suite],))
    if not programs:
        raise ValueError(
            f"{config.seed_environments} has no {SUITES[suite]} environments of setting "
            f"{config.setting!r}; check seed_environments and setting."
        )
    groups = _questions(suite, programs, config)
    limits = dataclasses.replace(config.rollout, isolation="environment")
    rng = seeds.stream(config.evaluate.seed, "evaluate", 1)
    played = world.play(groups, params, config.evaluate.temperature, limits, rng)
    return _tally(suite, programs, played.episodes, time.monotonic() - begun)


def _questions(suite, programs, config: settings.RunConfig) -> list[rollout.Group]:
    known = SUITES[suite] == "train"
    count = config.evaluate.instances if known else config.evaluate.held_out_instances
    rng = seeds.stream(config.evaluate.seed, "evaluate", 0)
    seeds_NS = seeds.evaluation_seeds(rng, (len(programs), count))
    environments = [
        library.environment(program, uid=-1 - n, max_turns=config.rollout.max_turns)
        for n, program in enumerate(programs)
    ]
    return rollout.table(environments, seeds_NS, (1, 0))


def _tally(suite, programs, episodes: list[records.Episode], seconds: float) -> Score:
    by_skill = collections.defaultdict(lambda: [0, 0])
    by_family = collections.defaultdict(lambda: [0, 0])
    answers = []
    for episode in sorted(episodes, key=lambda e: (e.environment, e.seed_index)):
        program = programs[episode.environment]
        if episode.fault:
            answers.append("x")
            continue
        solved = episode.value >= 1.0
        answers.append("1" if solved else "0")
        for table, key in ((by_skill, program.skill), (by_family, program.family)):
            table[key][0] += int(solved)
            table[key][1] += 1
    solved, questions = answers.count("1"), len(answers) - answers.count("x")
    bounds = metrics.interval(solved, max(questions, 1))
    return Score(
        suite=suite,
        solved=solved,
        questions=questions,
        faults=answers.count("x"),
        low=bounds.low,
        high=bounds.high,
        by_skill={key: tuple(value) for key, value in sorted(by_skill.items())},
        by_family={key: tuple(value) for key, value in sorted(by_family.items())},
        answers="".join(answers),
        fault_details=tuple(sorted({f"{e.fault}: {e.detail}" for e in episodes if e.fault})),
        seconds=seconds,
    )
