"""Supervised lessons for both roles, made from seed environments by running them in the sandbox.

In: seed files of the train split. Out: `Lesson` records: prompt and reply as text. The designer
learns to write variants of the programs; the agent learns replies of the form
"<the program's own working> \\boxed{<its solution>}".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from spade_jax import hosting, library, records, seed_files


@dataclasses.dataclass(frozen=True, kw_only=True)
class LessonConfig:
    variants: int = 24  # programs made of each family by turning its knobs
    plays: int = 32  # instances of each program
    hinted_share: float = 0.35  # of the plays that show the hint

    def __post_init__(self):
        if self.variants < 1 or self.plays < 1 or not 0.0 <= self.hinted_share <= 1.0:
            raise ValueError(
                f"lessons: variants={self.variants} and plays={self.plays} must be >= 1, "
                f"hinted_share={self.hinted_share} in [0, 1]."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lesson:
    """One prompt and the reply to learn."""

    role: int
    skill: str
    difficulty: str
    prompt: str  # the agent's first observation; empty for the designer, who is asked by skill
    hint: str | None  # shown to the agent below its observation
    reply: str


def build(
    seeds_of_families: Sequence[seed_files.SeedFile],
    open_session: Callable[[records.Environment, int], Any],
    config: LessonConfig,
    rng: np.random.Generator,
    processes: int = 32,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Lesson]:
    """Write the lessons of every variant of every family, in a fixed order.

    Args:
      open_session: (environment, seed) -> sandbox session; see `sandbox.crew`.
      processes: sandbox processes alive at once.
      progress: called with (programs done, programs in all).
    Raises:
      RuntimeError: a seed environment fails in the sandbox (it is ours, so it must be mended), or
        the sandbox lost its process twice.
    """
    variants = _variants(seeds_of_families, config, rng)
    plays_NG = rng.integers(0, 2**30, size=(len(variants), config.plays))
    hinted_NG = rng.random((len(variants), config.plays)) < config.hinted_share
    lessons: list[Lesson] = []
    for begin in range(0, len(variants), processes):
        rows = range(begin, min(begin + processes, len(variants)))
        hosts = hosting.Hosts(lambda n: open_session(variants[n], int(plays_NG[n, 0])))
        try:
            for n in rows:
                hosts.start(n)
            answers = hosts.ask(
                [hosting.Message(key=n, requests=_requests(plays_NG[n])) for n in rows]
            )
        finally:
            hosts.close()
        for n, outcomes in zip(rows, answers, strict=True):
            lessons.append(_writing(variants[n]))
            lessons.extend(_playing(variants[n], outcomes, hinted_NG[n]))
        progress(len(rows) + begin, len(variants))
    return lessons


def reply_text(working: str | None, solution: str) -> str:
    """Write an agent's reply: working, then the boxed answer."""
    boxed = f"\\boxed{{{solution}}}"
    return f"{working.strip()} {boxed}" if working and working.strip() else boxed


def fenced(source: str) -> str:
    """Write a designer's reply."""
    return f"```python\n{source.strip()}\n```"


def _variants(seeds_of_families, config, rng) -> list[records.Environment]:
    made = []
    for seed in seeds_of_families:
        known = set()
        for _ in range(config.variants):
            code, difficulty = library.variant(seed, rng)
            if code in known:
                continue
            known.add(code)
            base = library.environment(seed, uid=-1 - len(made), max_turns=1)
            made.append(dataclasses.replace(base, source=code, difficulty=difficulty))
    return made


def _requests(plays_G: np.ndarray) -> list[dict]:
    requests = []
    for g, seed in enumerate(plays_G):
        requests += [
            {"op": "load", "play": g, "seed": int(seed), "max_turns": 1, "pacing": "respect"},
            {"op": "reset", "play": g, "seed": int(seed)},
            {"op": "hint", "play": g},
            {"op": "solution", "play": g},
            {"op": "drop", "play": g},
        ]
    return requests


def _writing(environment: records.Environment) -> Lesson:
    return Lesson(
        role=records.DESIGNER,
        skill=environment.skill,
        difficulty=environment.difficulty,
        prompt="",
        hint=None,
        reply=fenced(environment.source),
    )


def _playing(environment, outcomes, hinted_G) -> list[Lesson]:
    lessons = []
    for g, hinted in enumerate(hinted_G):
        answers = outcomes[5 * g : 5 * g + 4]
        for outcome in answers:
            if outcome.status == "infra":
                raise RuntimeError(
                    f"The sandbox lost the process of seed environment {environment.family!r} "
                    f"twice: {outcome.detail}. Look at `python -m sandbox doctor`, then run the "
                    "same command again."
                )
            if outcome.status != "ok":
                raise RuntimeError(
                    f"Seed environment {environment.family!r} failed in the sandbox: "
                    f"{outcome.status}: {outcome.detail}. Mend it; `python -m launch.check_env` "
                    "says what is wrong."
                )
        hint, solution = answers[2].value["hint"], answers[3].value["solution"]
        if solution is None:
            raise RuntimeError(f"Seed environment {environment.family!r} has no solution().")
        lessons.append(
            Lesson(
                role=records.AGENT,
                skill=environment.skill,
                difficulty=environment.difficulty,
                prompt=answers[1].value["observation"],
                hint=hint if hinted else None,
                reply=reply_text(hint, solution),
            )
        )
    return lessons
