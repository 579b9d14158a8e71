"""Supervised lessons for both roles, made from seed environments by running them in the sandbox.

In: seed files of the train split. Out: `Lesson` records: prompt and reply as text. The designer
learns to write variants of the programs; the agent learns replies of the form
"<the program's own working> \\boxed{<its solution>}", and a share of hasty guesses: a policy that
imitates players of mixed care has something that reward can teach and imitation cannot.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from spade_jax import hosting, library, records, seed_files


@dataclasses.dataclass(frozen=True, kw_only=True)
class LessonConfig:
    """What the demonstrations of the warm start are made of."""

    variants: int = 24  # programs made of each family by turning its knobs
    plays: int = 32  # instances of each program
    hinted_share: float = 0.35  # of the plays that show the hint
    hasty_share: float = 0.0  # of the replies that guess without working, as hasty players do

    def __post_init__(self):
        if self.variants < 1 or self.plays < 1:
            raise ValueError(
                f"lessons: variants={self.variants} and plays={self.plays} must be >= 1."
            )
        if not (0.0 <= self.hinted_share <= 1.0 and 0.0 <= self.hasty_share <= 1.0):
            raise ValueError(
                f"lessons: hinted_share={self.hinted_share} and hasty_share={self.hasty_share} "
                "are shares; set them in [0, 1]."
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
    hasty_NG = rng.random((len(variants), config.plays)) < config.hasty_share
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
            lessons.extend(_playing(variants[n], outcomes, hinted_NG[n], hasty_NG[n]))
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


def _playing(environment, outcomes, hinted_G, hasty_G) -> list[Lesson]:
    """Write one lesson per play; a hasty one gives the next play's answer, mostly a wrong one."""
    plays = [_checked(environment, outcomes[5 * g : 5 * g + 4]) for g in range(len(hinted_G))]
    lessons = []
    for g, (observation, working, solution) in enumerate(plays):
        reply = reply_text(working, solution)
        if hasty_G[g]:
            reply = reply_text(None, plays[(g + 1) % len(plays)][2])
        lessons.append(
            Lesson(
                role=records.AGENT,
                skill=environment.skill,
                difficulty=environment.difficulty,
                prompt=observation,
                hint=working if hinted_G[g] else None,
                reply=reply,
            )
        )
    return lessons


def _checked(environment, answers) -> tuple[str, str | None, str]:
    """Read observation, working and solution of one play; our own files must have them."""
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
    solution = answers[3].value["solution"]
    if solution is None:
        raise RuntimeError(f"Seed environment {environment.family!r} has no solution().")
    return answers[1].value["observation"], answers[2].value["hint"], solution
