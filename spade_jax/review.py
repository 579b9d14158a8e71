"""Review: the policy reads a program beside a play of it, and a "no" costs the designer.

In: environments whose drafts wait for credit, one plain play each. Out: whether each is held for
unsound. No verdict is a yes: these environments have passed every check, and silence is no fault of
theirs. Source: self-judge of SPADE's public implementation; differs in that the penalty is taken
off the raw reward, as the other penalties are, and not off the centred one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from spade_jax import programs, records

TURNS = 5  # of a play that are shown
FIRST_CHARACTERS = 500  # of the first observation
CHARACTERS = 300  # of an action or a later observation


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReviewConfig:
    """What a verdict of unsound costs the designer, and how the policy is asked."""

    penalty: float = 0.0  # of a draft whose environment is held for unsound; 0 asks nobody
    max_tokens: int = 512  # of a verdict
    temperature: float = 0.3

    def __post_init__(self):
        if self.penalty < 0:
            raise ValueError(f"review.penalty={self.penalty}: it is taken off. Set it to >= 0.")
        if self.max_tokens < 1:
            raise ValueError(f"review.max_tokens={self.max_tokens}: set it to at least 1.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reviews:
    """What reviewing took in one iteration."""

    asked: int = 0  # replies of the policy
    unsound: int = 0
    no_room: int = 0  # program and play filled the row, so that nobody was asked


def judge(
    environments: Sequence[records.Environment],
    episodes: Sequence[records.Episode],
    prompt_of: Callable[[records.Environment, str], Sequence[int]],
    generate: Callable[[list, list], list[records.Reply]],
    text_of: Callable[[records.Reply], str],
    seeds_E: Sequence[int],
) -> list[bool | None]:
    """Ask about each environment; True where the policy holds it for unsound, None without room.

    Args:
      episodes: one play of each environment.
      prompt_of: (environment, its play as text) -> prompt token ids.
      generate: (prompts, sampler seeds) -> replies in order; one without ids had no room.
      text_of: reply -> text without thinking.
    """
    if not environments:
        return []
    pairs = zip(environments, episodes, strict=True)
    replies = generate([prompt_of(e, shown(played)) for e, played in pairs], list(seeds_E))
    return [
        programs.boxed_verdict(text_of(reply)) == "no" if reply.ids else None for reply in replies
    ]


def shown(episode: records.Episode) -> str:
    """Write a play for the reviewer: its first turns, cut, and how it ended."""
    lines = [f"ENVIRONMENT: {_cut(episode.observation, FIRST_CHARACTERS)}"]
    for turn in episode.turns[:TURNS]:
        lines.append(f"PLAYER: {_cut(turn.action, CHARACTERS)}")
        lines.append(f"ENVIRONMENT (reward {turn.reward:g}): {_cut(turn.answer, CHARACTERS)}")
    if len(episode.turns) > TURNS:
        lines.append(f"... {len(episode.turns) - TURNS} more turns")
    end = "The play was cut off." if episode.truncated else "The play ended."
    return "\n".join([*lines, f"{end} It counts {episode.value:g}."])


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} ..."
