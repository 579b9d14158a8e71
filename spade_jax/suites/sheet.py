"""The results of one suite at one checkpoint: a line per task, kept as soon as it is known.

In: results. Out: `NAME.jsonl`, whose first line says what the results depend on. A process that is
killed leaves whole lines; the next one asks `missing` what is left to score.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from etils import epath

from spade_jax import files, metrics
from spade_jax.suites import suite

_Z95 = 1.959964


class SheetError(ValueError):
    """A sheet that belongs to other settings, or is damaged."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """A whole suite at one checkpoint."""

    suite: str
    role: str
    rate: float  # share solved: of questions, or mean over tasks of a task's share
    low: float  # 95% interval
    high: float
    solved: int
    questions: int  # tries that say something: faults are left out of them
    faults: int
    pass_at: dict[str, float]  # k -> unbiased estimate, where questions are repeated
    repeated: bool
    answers: dict[str, str]  # by task
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)  # what it depends on; lists
    # and objects by their digest. Scores of other settings are not compared


class Sheet:
    """Owns the file of one suite at one checkpoint."""

    def __init__(self, folder: epath.PathLike, given: suite.Suite, settings: Mapping):
        """Read what stands there.

        Args:
          settings: what all suites of the evaluation depend on, JSON-able.
        Raises:
          SheetError: the results were made with other settings, or a line is damaged.
        """
        self.suite = given
        self.path = epath.Path(folder) / f"{metrics.slug(given.name)}.jsonl"
        head = {"suite": given.name, "tasks": len(given.tasks), **settings, **given.settings}
        self._head = json.loads(json.dumps(head))
        self.results: dict[str, suite.Result] = {}
        self._read()

    def missing(self) -> list[str]:
        """List the tasks that have no result yet, in the order of the suite."""
        return [task for task in self.suite.tasks if task not in self.results]

    def add(self, result: suite.Result) -> None:
        """Keep a result; it is on the disk when this returns.

        Raises:
          SheetError: the suite has no such task, or its result is known already.
        """
        if result.task not in self.suite.tasks or result.task in self.results:
            raise SheetError(f"{self.path}: a second or unknown result of task {result.task!r}.")
        self.results[result.task] = result
        lines = [self._head, *map(dataclasses.asdict, self.results.values())]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        files.replace(self.path, files.join(map(json.dumps, lines)))

    def score(self) -> Score:
        """Sum up what is known."""
        brief = {key: _brief(value) for key, value in self._head.items()}
        return dataclasses.replace(summarise(self.suite, self.results), settings=brief)

    def _read(self) -> None:
        lines = files.whole_lines(self.path)
        if not lines:
            return
        try:
            head, *rows = map(json.loads, lines)
            found = [suite.Result(**row) for row in rows]
        except (ValueError, TypeError) as error:
            raise SheetError(
                f"{self.path} is damaged ({error}). Remove it to score again."
            ) from error
        if head != self._head:
            differing = sorted(k for k in {*head, *self._head} if head.get(k) != self._head.get(k))
            raise SheetError(
                f"{self.path} was made with another {', '.join(differing)}. Give the settings it "
                "was made with, or remove it to score again."
            )
        self.results = {result.task: result for result in found}


def summarise(given: suite.Suite, results: Mapping[str, suite.Result]) -> Score:
    """Sum up a suite.

    The interval is Wilson's over questions; where a question is tried more than once it is normal
    over tasks, whose tries are not independent, or Wilson's over tasks where all shares are equal.
    """
    answers = {task: results[task].answers for task in given.tasks if task in results}
    text = "".join(answers.values())
    solved, faults = text.count("1"), text.count("x")
    shares = [_share(tries) for tries in answers.values() if _share(tries) is not None]
    if given.repeated and max(map(len, answers.values()), default=0) > 1:
        rate, low, high = _over_tasks(shares)
    else:
        bounds = metrics.interval(solved, len(text) - faults)
        rate, low, high = bounds.mean, bounds.low, bounds.high
    return Score(
        suite=given.name,
        role=given.role,
        rate=rate,
        low=low,
        high=high,
        solved=solved,
        questions=len(text) - faults,
        faults=faults,
        pass_at=_pass_at(given, answers) if given.repeated else {},
        repeated=given.repeated,
        answers=answers,
    )


def _brief(value: Any) -> Any:
    if not isinstance(value, (list, dict)):
        return value
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _share(tries: str) -> float | None:
    scored = len(tries) - tries.count("x")
    return tries.count("1") / scored if scored else None


def _over_tasks(shares: list[float]) -> tuple[float, float, float]:
    if not shares:
        return math.nan, 0.0, 1.0
    mean = float(np.mean(shares))
    if len(shares) < 2:
        return mean, 0.0, 1.0
    half = _Z95 * float(np.std(shares, ddof=1)) / math.sqrt(len(shares))
    if half == 0.0:  # tasks that are all alike say that little varies, not that nothing does
        bounds = metrics.interval(mean * len(shares), len(shares))
        return mean, bounds.low, bounds.high
    return mean, max(0.0, mean - half), min(1.0, mean + half)


def _pass_at(given: suite.Suite, answers: Mapping[str, str]) -> dict[str, float]:
    """Mean over tasks; a task whose faults leave fewer than k tries is left out of that k."""
    means = {}
    for k in given.k:
        rates = [
            suite.pass_at_k(len(tries) - tries.count("x"), tries.count("1"), k)
            for tries in answers.values()
            if len(tries) - tries.count("x") >= k
        ]
        if rates:
            means[str(k)] = float(np.mean(rates))
    return means
