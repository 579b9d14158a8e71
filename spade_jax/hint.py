"""Hints: privileged help for one environment, and the gate every hint passes.

In: an environment (source `policy`) or what its program computed (source `program`), with the
answers of the instance in play. Out: the hint that may be shown, or the reason why none may.
Source: SPADE (arXiv:2608.19197) section 3; the gate is ours (the paper checks only for emptiness).
"""

from __future__ import annotations

import collections
import dataclasses
import decimal
import re
from collections.abc import Callable, Sequence
from typing import Literal

from spade_jax import disguises, records

REASONS = (
    "none",  # there is no hint
    "empty",
    "too_long",
    "fence",
    "leaks_answer",  # by its words, or because playing them wins
    "unchecked",  # no solution() or a failing one, so that nobody can say what would leak
)
MAX_TRIES = 12  # actions that a hint's own words may give; each costs a play of one step
MAX_WORD = 20  # characters that count as one word

_WORD = re.compile(r"(?<!\w)\d*\.\d+(?!\w)|\w+")  # a decimal number or a word
_NUMBER = re.compile(r"[\d.]+(?:e\d+)?")
_THOUSANDS = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\w,]|\.\d)")  # 1,000
_MARKUP = re.compile(r"\\(?:boxed|text|textbf|mathrm|mathbf)\b|</?(?:answer|tool_call)>")
_BOX = re.compile(r"\\boxed\s*\{([^{}]*)\}")
_QUOTED = re.compile(r"[\"'`]([^\"'`\n]+)[\"'`]")
_TOLD = re.compile(r"(?::|=|\bis\b|\bare\b)\s*([^\n]+)")  # "the answer is 3 1 2"
_RUN = re.compile(r"-?\d[\d.]*(?:[\s,;]+-?\d[\d.]*)+")  # numbers in a row
_EDGES = " \t\r\n\"'`.,;:!?()[]{}$*"


@dataclasses.dataclass(frozen=True, kw_only=True)
class HintConfig:
    """Who writes hints, and how long they may be."""

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
    tries: tuple[str, ...] = ()  # actions that must not win at once, for who can play them


def judge(hint: str | None, secrets: Sequence[str], config: HintConfig) -> Verdict:
    """Pass or refuse one hint.

    Args:
      hint: the text, None where there is none.
      secrets: texts that would give the instance away: its solution, winning actions, tool values.
        Of a text of several lines, each line is an action of its own.
    """
    if hint is None:
        return Verdict(hint=None, reason="none")
    text = hint.strip()
    if not text:
        return Verdict(hint=None, reason="empty")
    if len(text.split()) > config.max_words or len(text) > MAX_WORD * config.max_words:
        return Verdict(hint=None, reason="too_long")
    if "```" in text:
        return Verdict(hint=None, reason="fence")
    if any(holds(text, action) for secret in secrets for action in actions(secret)):
        return Verdict(hint=None, reason="leaks_answer")
    return Verdict(hint=text, reason="")


def actions(solution: str) -> list[str]:
    """List the actions that a solution names: the whole of it, its lines, its boxes."""
    found = [solution, *solution.splitlines(), *_BOX.findall(solution)]
    return list(dict.fromkeys(part.strip() for part in found if part.strip()))


def holds(text: str, secret: str) -> bool:
    """Tell whether `secret` stands in `text`, word for word.

    Case, boxes, white space and every sign between words are ignored; numbers are compared by value
    without their sign: "07", "7.0" and "x = 7" hold "7", while "17" and "2.7" do not. Letters are
    found spelled apart or together ("c a b" and "cab"). A secret of signs alone is sought as it is.
    Numbers in words, a word backwards, base64 and hexadecimal digits hide nothing either; a sum
    ("6 * 7"), a cipher, another language and a description do.
    """
    for sought in _readings(secret):
        if not sought:
            continue
        forms = [sought]
        letters = "".join(sought)
        if len(letters) > 2 and letters.isalpha():
            forms += [[letters], list(letters)]
        forms += disguises.in_words(sought) + disguises.backwards(sought)
        if any(_contains(body, form) for body in _readings(text) for form in forms):
            return True
    if disguises.encoded(secret) & {part for w in text.split() for part in (w, w.strip(_EDGES))}:
        return True
    bare = secret.strip(_EDGES)
    signs = bool(bare) and not _WORD.search(bare)
    return signs and bare in [chunk.strip(_EDGES) for chunk in text.split()]


def tries(text: str) -> list[str]:
    """List what a player might take from a hint as its action, the likeliest first.

    The text itself, what is boxed, quoted or told ("the answer is ..."), numbers in a row, then its
    words, numbers before others and the last before the first. At most MAX_TRIES.
    """
    words = [word.strip(_EDGES) for word in text.split()][::-1]
    numbers = [word for word in words if word[:1].isdigit() or word[1:2].isdigit()]
    runs = [" ".join(re.split(r"[\s,;]+", run)) for run in _RUN.findall(text)]
    found = [text, *text.splitlines()]
    for pattern in (_BOX, _QUOTED, _TOLD):
        found += pattern.findall(text)
    found = [part.strip(_EDGES) for part in [*found, *runs, *numbers, *words]]
    return list(dict.fromkeys(part for part in found if part))[:MAX_TRIES]


def _readings(text: str) -> list[list[str]]:
    """Cut a text into words, numbers in their shortest form; "1,000" is read in both ways."""
    plain = _MARKUP.sub(" ", text.lower())
    joined = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), plain)
    return [_words(reading) for reading in dict.fromkeys((plain, joined))]


def _words(text: str) -> list[str]:
    words = [word.strip("_") for word in _WORD.findall(text)]
    return [_shortest(word) if _NUMBER.fullmatch(word) else word for word in words if word]


def _shortest(number: str) -> str:
    try:
        return str(decimal.Decimal(number).normalize())
    except decimal.DecimalException:
        return number


def _contains(body: Sequence[str], part: Sequence[str]) -> bool:
    size = len(part)
    return any(body[i : i + size] == part for i in range(len(body) - size + 1))


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
      the environments, with a hint or marked `hint_failed`; refusals counted by reason.
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
    for i in waiting:
        done[i] = dataclasses.replace(done[i], hint_failed=True)
    return done, refusals
