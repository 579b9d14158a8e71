"""Scripted players: what wins without thinking must not count as an environment.

In: what a player sees. Out: the content of its next action. Pure functions of (player, seed, turn).
Two kinds stand beside those that see only what the agent sees. COPYING players repeat what won on
another seed. INFORMED players know the right answer and say it in a way that must not count: they
show a judge that looks for the answer inside the reply, or for the reply inside the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

PLAYERS = ("empty", "constant", "echo", "first_option", "random_words", "random_integers")
BARE = {  # sent as it is, with no box or tag around: an agent's reply may be so, and empty too
    "silent": "empty",
    "bare_word": "random_words",
    "bare_integer": "random_integers",
}  # -> the player whose words it says
COPYING = ("replay", "last_word")  # the actions of another seed; what ended most other seeds
INFORMED = ("all_answers", "part_of_answer")  # of tasks that are answered, not of tool use
SHORTCUT = "shortcut"  # says at once what its own seed's solver said last; may win, if it is hidden
CALLING = ("random_calls",)  # of tool use

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


def all_answers(answers: Sequence[str], own: str) -> str:
    """List the answers of many seeds, the right one in the middle; "" where there are too few."""
    others = [answer for answer in dict.fromkeys(answers) if answer != own]
    if len(others) < 2 or "\n" in own:
        return ""
    half = len(others) // 2
    return ", ".join([*others[:half], own, *others[half:]])


def part_of(answer: str) -> str:
    """Take one letter or digit out of the middle of an answer; "" where it is but one."""
    signs = [sign for sign in answer if sign.isalnum()]
    return signs[len(signs) // 2] if len(signs) > 1 else ""


def random_call(tools: Sequence[Any], seen: str, seed: int, turn: int) -> str:
    """Call one of the listed tools with values of the right types, as content of an action.

    Args:
      tools: function schemas, as the program gives them.
      seen: text whose words and numbers serve as values.
    """
    rng = np.random.default_rng([seed, turn, len(PLAYERS)])
    functions = [tool["function"] for tool in tools if isinstance(tool, Mapping)]
    if not functions:
        return ""
    chosen = functions[rng.integers(len(functions))]
    rules = chosen.get("parameters")
    rules = rules.get("properties") if isinstance(rules, Mapping) else None
    given = {}
    for name, rule in (rules if isinstance(rules, Mapping) else {}).items():
        given[str(name)] = _value(rule if isinstance(rule, Mapping) else {}, seen[:MAX_READ], rng)
    return f"<tool_call>{json.dumps({'name': chosen.get('name'), 'arguments': given})}</tool_call>"


def _value(rule: Mapping, seen: str, rng: np.random.Generator) -> Any:
    listed = rule.get("enum")
    if isinstance(listed, list) and listed:
        return listed[rng.integers(len(listed))]
    kind = rule.get("type")
    if kind == "boolean":
        return bool(rng.integers(2))
    if kind in ("integer", "number"):
        numbers = [int(digits) for digits in re.findall(r"\d{1,6}", seen)]
        return numbers[rng.integers(len(numbers))] if numbers else int(rng.integers(10))
    if kind == "object":
        return {}
    words = _WORD.findall(seen) or ["yes"]
    word = words[rng.integers(len(words))]
    return [word] if kind == "array" else word
