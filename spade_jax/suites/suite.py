"""What a suite is, what it is given, and what it hands out; pass@k."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from spade_jax import records, rollout

Message = Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What one task came to."""

    task: str
    answers: str  # one character a try: 1 solved, 0 not, x a fault that says nothing
    detail: str = ""  # of what went wrong, for people


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """What a suite may use."""

    ask: Callable[[Sequence[Sequence[Message]], Sequence[int]], list[str | None]]
    # (conversations, sampler seeds) -> replies; None where the prompt leaves no room for one
    crew: Any  # sandbox.crew.Crew
    play: Callable[[list[rollout.Group], np.random.Generator], list[records.Episode]]
    seed: int  # of questions and of sampling

    def stream(self, task: str) -> np.random.Generator:
        """Open the random stream of one task: the same whichever tasks were scored before."""
        return np.random.default_rng([self.seed, zlib.crc32(task.encode())])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
    """Tasks, and how they are scored."""

    name: str
    tasks: tuple[str, ...]  # each is restarted as one
    score: Callable[[Bench, Sequence[str]], Iterator[Result]]  # any of the tasks -> a result each
    settings: Mapping[str, Any]  # what a result depends on, JSON-able: a sheet keeps to it
    role: Literal["validation", "test"] = "test"  # a checkpoint is never chosen by a test suite
    repeated: bool = False  # tries of a task repeat one question: intervals are over tasks
    k: tuple[int, ...] = (1,)  # of pass@k, where repeated

    def __post_init__(self):
        twice = len(self.tasks) - len(set(self.tasks))
        if twice or not self.tasks:
            raise ValueError(
                f"suite {self.name} has {len(self.tasks)} tasks, {twice} of them twice; it needs "
                "at least one, and each name once."
            )


def pass_at_k(tries: int, solved: int, k: int) -> float:
    """Estimate without bias how likely one of k tries is to solve a task.

    Args:
      tries: n, at least k.
      solved: c, how many of them did.
    Returns:
      1 - C(n - c, k) / C(n, k).
    Source: Chen et al. (2021), Evaluating large language models trained on code, equation 1.
    """
    if not 1 <= k <= tries:
        raise ValueError(f"pass@{k} of {tries} tries: k must lie in 1..{tries}. Sample more.")
    if tries - solved < k:
        return 1.0
    return float(1.0 - np.prod(1.0 - k / np.arange(tries - solved + 1, tries + 1)))


def user(text: str) -> list[Message]:
    """Write a conversation that one message opens."""
    return [{"role": "user", "content": text}]


def ask_each(
    bench: Bench, tasks: Sequence[str], prompts: Sequence[str], samples: int
) -> list[list[str | None]]:
    """Ask for several replies to each prompt, at once.

    Returns:
      replies, per task and sample.
    """
    talks, sampler_seeds = [], []
    for task, prompt in zip(tasks, prompts, strict=True):
        drawn = bench.stream(task).integers(0, 2**32, size=samples, dtype=np.uint32)
        talks += [user(prompt)] * samples
        sampler_seeds += [int(number) for number in drawn]
    replies = bench.ask(talks, sampler_seeds)
    return [replies[i : i + samples] for i in range(0, len(replies), samples)]


def blocks(tasks: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Cut tasks into blocks that are sampled together."""
    for start in range(0, len(tasks), size):
        yield tasks[start : start + size]
