"""Screen: the policy itself says whether sound programs can be solved, before they enter the pool.

In: environments that passed every check. Out: for each of them nothing, or why it is refused. By
`judgement` the policy reads the program and answers yes or no, as in the public implementation; by
`play` it plays a few episodes with the hint and must win some. Both fail closed: what the policy
does not find solvable stays out. Source: SPADE (arXiv:2608.19197) section 7; differs there, since
the public implementation accepts what it got no answer about.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

from spade_jax import programs, records

REASON = "unsolved"  # of the refusal, a key of validate.CHECKS
NOBODY = "infra"  # reason where no play or reply says anything: nobody pays


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScreenConfig:
    """Whether and how the policy decides about sound programs."""

    by: Literal["none", "judgement", "play"] = "none"
    max_tokens: int = 512  # of a judgement
    temperature: float = 0.3  # of a judgement; plays are sampled like those of training
    plays: int = 4  # by play: of each instance; an environment has rollout.seeds of them
    least_wins: int = 1  # by play: returns above 0 among all plays of an environment

    def __post_init__(self):
        for name in ("max_tokens", "plays", "least_wins"):
            if getattr(self, name) < 1:
                raise ValueError(f"screen.{name}={getattr(self, name)}: set it to at least 1.")


@dataclasses.dataclass
class Cost:
    """What judging drafts took in one iteration."""

    screened: int = 0  # sound drafts
    refused: int = 0
    replies: int = 0  # of the policy
    processes: int = 0  # that examined programs or hosted plays
    hint_refusals: collections.Counter = dataclasses.field(default_factory=collections.Counter)


def judge(
    environments: Sequence[records.Environment],
    prompt_of: Callable[[records.Environment], Sequence[int]],
    generate: Callable[[list, list], list[records.Reply]],
    text_of: Callable[[records.Reply], str],
    seeds_E: Sequence[int],
) -> list[programs.Finding | None]:
    """Ask the policy about each program.

    Args:
      prompt_of: environment -> prompt token ids.
      generate: (prompts, sampler seeds) -> replies in order.
      text_of: reply -> text without thinking.
    """
    if not environments:
        return []
    replies = generate([prompt_of(e) for e in environments], [int(seed) for seed in seeds_E])
    return [_read(text_of(reply)) if reply.ids else _no_room() for reply in replies]


def _no_room() -> programs.Finding:
    """Say that the program filled the row, so that nothing could be asked."""
    return programs.Finding(reason=NOBODY, detail="program and question leave no room for a reply")


def _read(text: str) -> programs.Finding | None:
    """Take the last boxed yes or no as the verdict; without one the answer is no."""
    found = programs.boxed_verdict(text)
    if found == "yes":
        return None
    told = "the policy holds it for unsolvable" if found else "the policy gives no verdict"
    return programs.Finding(reason=REASON, detail=told)


def count_wins(
    episodes: Sequence[records.Episode], environments: int, config: ScreenConfig
) -> list[programs.Finding | None]:
    """Judge environments by plays; `Episode.environment` is the place among them.

    A play that the environment broke is not won. Where every play was lost to a fault of ours, or
    its prompt did not fit the context, the reason is `NOBODY`.
    """
    findings: list[programs.Finding | None] = []
    for n in range(environments):
        told = [e for e in episodes if e.environment == n and e.fault in ("", "environment")]
        wins = sum(e.value > 0 for e in told if not e.fault)
        detail = f"{wins} of {len(told)} plays are won; at least {config.least_wins} must be"
        if not told:
            findings.append(programs.Finding(reason=NOBODY, detail="no play came to an end"))
        elif wins < config.least_wins:
            findings.append(programs.Finding(reason=REASON, detail=detail))
        else:
            findings.append(None)
    return findings
