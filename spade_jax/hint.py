"""Hints: privileged help for one environment, and the gate every hint passes.

In: an environment (source `policy`) or what its program computed (source `program`), with the
answers of the instance in play. Out: the hint that may be shown, or the reason why none may.
Source: SPADE (arXiv:2608.19197) section 3; the gate is ours (the paper checks only for emptiness).
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Literal

from spade_jax import records

REASONS = (
    "none",  # there is no hint
    "empty",
    "too_long",
    "fence",
    "leaks_answer",
    "unchecked",  # solution() failed, so that nobody can say what would leak
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HintConfig:
    source: Literal["program", "policy"] = "program"  # who writes: the environment, or the policy
    max_words: int = 100
    max_tokens: int = 128  # of a hint that the policy writes
    temperature: float = 0.3

    def __post_init__(self):
        if self.max_words < 1:
            raise ValueError(f"hint.max_words={self.max_words}: a hint has words. Set it >= 1.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the gate says of one hint."""

    hint: str | None  # the text to show, None where it may not be shown
    reason: str  # "" where it may, else one of REASONS


def judge(hint: str | None, secrets: Sequence[str], config: HintConfig) -> Verdict:
    """Pass or refuse one hint.

    Args:
      hint: the text, None where there is none.
      secrets: texts that would give the instance away: its solution, winning actions, tool values.
        They are matched as whole words: an answer "7" is found neither in "17" nor in "2.7".
    """
    if hint is None:
        return Verdict(hint=None, reason="none")
    text = hint.strip()
    if not text:
        return Verdict(hint=None, reason="empty")
    if len(text.split()) > config.max_words:
        return Verdict(hint=None, reason="too_long")
    if "```" in text:
        return Verdict(hint=None, reason="fence")
    if any(holds(text, secret) for secret in secrets):
        return Verdict(hint=None, reason="leaks_answer")
    return Verdict(hint=text, reason="")


def holds(text: str, secret: str) -> bool:
    """Tell whether `secret` stands in `text` as whole words, white space and case folded.

    A word does not begin or end inside another word or inside a decimal number.
    """
    words = " ".join(secret.lower().split())
    if not words:
        return False
    body = " ".join(text.lower().split())
    pattern = rf"(?<!\w)(?<!\d\.){re.escape(words)}(?!\w)(?!\.\d)"
    return re.search(pattern, body) is not None


def write(
    environments: Sequence[records.Environment],
    prompt_of: Callable[[records.Environment], Sequence[int]],
    generate: Callable[[list, list], list[records.Reply]],
    text_of: Callable[[records.Reply], str],
    seeds_EA: Sequence[Sequence[int]],
    config: HintConfig,
) -> tuple[list[records.Environment], collections.Counter]:
    """Let the policy write one hint per environment, asking a second time where the gate refuses.

    The answers of the instances in play are not known yet: `judge` runs again when they are.

    Args:
      prompt_of: environment -> prompt token ids.
      generate: (prompts, sampler seeds) -> replies in order.
      text_of: reply -> text without thinking.
      seeds_EA: two sampler seeds per environment, one for each attempt.
    Returns:
      the environments, with a hint or without; refusals counted by reason.
    """
    done = list(environments)
    refusals = collections.Counter()
    waiting = list(range(len(done)))
    for attempt in range(2):
        if not waiting:
            break
        prompts = [prompt_of(done[i]) for i in waiting]
        replies = generate(prompts, [int(seeds_EA[i][attempt]) for i in waiting])
        refused = []
        for i, reply in zip(waiting, replies, strict=True):
            verdict = judge(text_of(reply) if reply.stopped else None, (), config)
            if verdict.reason:
                refusals[verdict.reason] += 1
                refused.append(i)
            else:
                done[i] = dataclasses.replace(done[i], hint=verdict.hint)
        waiting = refused
    return done, refusals
