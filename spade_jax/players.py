"""Scripted players: what wins without thinking must not count as an environment.

In: what a player sees. Out: the content of its next action. Pure functions of (player, seed, turn).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

PLAYERS = ("empty", "constant", "echo", "first_option", "random_words", "random_integers")

_WORD = re.compile(r"[\w.+-]*\w")
_LISTED = re.compile(
    r"(?:options|choices|actions|commands|moves|tools)[^:\n]*:\s*([^,;|\n]+)"  # "Commands: a, b"
    r"|^\s*(?:[-*]|\(?[A-Da-d1-9][).:])\s+([^\n]+)"  # "- a", "A) a", "1. a"
    r"|\[([^\],]+)",  # "[a, b]"
    re.IGNORECASE | re.MULTILINE,
)
_QUOTED = re.compile(r"[\"'`]([^\"'`\n]+)[\"'`]")
MAX_READ = 4000  # characters of an observation that a scripted player looks at


def content(player: str, observation: str, constant: str, seed: int, turn: int) -> str:
    """Choose what a scripted player says next.

    Args:
      player: one of PLAYERS.
      observation: the newest text from the environment.
      constant: what the constant player says every time.
      seed: of the play; with `turn` it fixes the random choices.
    """
    seen = observation[:MAX_READ]
    rng = np.random.default_rng([seed, turn, PLAYERS.index(player)])
    if player == "empty":
        return ""
    if player == "constant":
        return constant
    if player == "echo":
        return seen
    if player == "first_option":
        return first_option(seen)
    if player == "random_words":
        words = _WORD.findall(seen) or ["yes"]
        return words[rng.integers(len(words))]
    numbers = [int(digits) for digits in re.findall(r"\d{1,6}", seen)]
    return str(rng.integers(0, max([9, *numbers]) + 1))


def first_option(observation: str) -> str:
    """Read the first thing that a text lists: an option, a list item, a quoted word, any word."""
    match = _LISTED.search(observation)
    if match:
        return next(group for group in match.groups() if group).strip().strip("\"'`. ")
    match = _QUOTED.search(observation) or _WORD.search(observation)
    return match.group(match.lastindex or 0) if match else "1"


def most_common(answers: Sequence[str]) -> str:
    """Choose what the constant player says: the commonest answer, "1" where none is known."""
    known = sorted(answers)
    return max(known, key=known.count) if known else "1"
