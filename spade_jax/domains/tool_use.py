"""Tool use: a user with instructions, tools that act on a state, an answer that closes."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import numpy as np

from spade_jax import programs
from spade_jax.domains import domain, imports

WORLDS = (
    "retail orders",
    "flights and hotels",
    "a telecom account",
    "banking",
    "a calendar",
    "a file system",
    "a shopping cart",
    "support tickets of a customer desk",
    "a smart home",
    "a project tracker",
)
VARIANTS = {  # kind of task -> weight of the draw
    "execute: everything that the tools need stands in the instructions": 3,
    "read then write: a value must be looked up with one tool before another can use it": 2,
    "missing value: one required value is in no instruction and must be found with a tool": 1,
    "one irrelevant request: no tool serves it, and `decline_request` is the right call": 1,
}
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_SPACE = re.compile(r"\s*")
_CLOSING = re.compile(r"\s*</tool_call>")
_END = re.compile(r"(?:<\|im_end\|>|<\|endoftext\|>)\s*$")
# The trainer reads replies, too: what is never closed ends with the text, or every opening would
# search to the end of it.
_FUNCTION = re.compile(r"<function=([^>\s]+)\s*>(.*?)(?:</function>|$)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)\s*>(.*?)(?:</parameter>|\Z)", re.DOTALL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """One tool call."""

    name: str
    arguments: dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parsed:
    """A reply, taken apart."""

    calls: tuple[Call, ...]  # in order of writing
    text: str  # what stands around the calls
    malformed: int  # tags whose inside could not be read


def action(reply: str) -> str:
    """Send the stripped reply as it is; the environment reads tags itself."""
    return reply.strip()


def wrap(content: str) -> str:
    """Write content as an action: tagged text stays, anything else becomes an answer."""
    return content if "<" in content and ">" in content else f"<answer>{content}</answer>"


def parse_calls(reply: str) -> Parsed:
    """Read the tool calls of a reply, JSON or XML, nested arguments included.

    Source: SPADE's public implementation; differs in that nested arguments survive.
    """
    calls, outside, malformed, position = [], [], 0, 0
    while (start := reply.find(_OPEN, position)) >= 0:
        inside = start + len(_OPEN)
        found, end = _read_call(reply, inside)
        if end < 0 and not found:
            break
        end = len(reply) if end < 0 else end
        outside.append(reply[position:start])
        calls += found
        malformed += not found
        position = end
    outside.append(reply[position:])
    text = _END.sub("", "".join(outside)).strip()
    return Parsed(calls=tuple(calls), text=text, malformed=malformed)


def malformed(action: str) -> bool:
    """Tell whether an action tries a tool call of which nothing can be read.

    Text before the end of thinking does not count, and an answer goes before any call.
    Source: SPADE's public implementation, where such a reply may be left out of the loss.
    """
    acted = action.rsplit("</think>", 1)[-1]
    return _OPEN in acted and not _answers(acted) and not parse_calls(acted).calls


def calls_tools(action: str) -> bool:
    """Tell whether an action calls tools, so that their results answer it and not the user."""
    acted = action.rsplit("</think>", 1)[-1]
    return not _answers(acted) and bool(parse_calls(acted).calls)


def _answers(acted: str) -> bool:
    start = acted.find("<answer>")
    return start >= 0 and acted.find("</answer>", start) >= 0


def call_values(reply: str) -> list[str]:
    """List the values that a reply's tool calls are given, names and nesting taken off."""
    waiting: list[Any] = [call.arguments for call in parse_calls(reply).calls]
    values = []
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
            values.append(str(value))
    return values


def draw(rng: np.random.Generator) -> tuple[str, str]:
    """Draw the world and the kind of task of one designer prompt."""
    weights = np.array(list(VARIANTS.values()), float)
    variant = rng.choice(len(weights), p=weights / weights.sum())
    return WORLDS[rng.integers(len(WORLDS))], list(VARIANTS)[variant]


def _read_call(reply: str, inside: int) -> tuple[list[Call], int]:
    """Read one tag's inside; returns the calls and where the tag ends, -1 if it never does."""
    try:
        value, stop = json.JSONDecoder().raw_decode(reply, _SPACE.match(reply, inside).end())
        close = _CLOSING.match(reply, stop)
    except (ValueError, RecursionError):
        value, stop, close = None, inside, None
    if close:
        return _json_calls(value), close.end()
    end = reply.find(_CLOSE, inside)
    if end >= 0:
        return _xml_calls(reply[inside:end]), end + len(_CLOSE)
    if value is not None and not _END.sub("", reply[stop:]).strip():
        return _json_calls(value), -1
    return _xml_calls(reply[inside:]), -1


def _json_calls(value: Any) -> list[Call]:
    calls = [_json_call(item) for item in (value if isinstance(value, list) else [value])]
    return [] if None in calls else calls


def _json_call(value: Any) -> Call | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        arguments = _decoded(arguments) if arguments.strip() else None
    arguments = {} if arguments is None else arguments
    if not isinstance(arguments, dict):
        return None
    return Call(name=value["name"], arguments=arguments)


def _xml_calls(body: str) -> list[Call]:
    return [
        Call(name=name, arguments={key: _decoded(raw) for key, raw in _PARAMETER.findall(inner)})
        for name, inner in _FUNCTION.findall(body)
    ]


def _decoded(raw: str) -> Any:
    """Read a value as JSON where it is JSON, as text otherwise."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return raw.strip()


DOMAIN = domain.Domain(
    name="tool_use",
    prelude=imports.INJECTED + "from tool_use_base_env import ToolUseBaseEnv\n",
    modules={"tool_use_base_env": domain.guest("tool_use_base_env")},
    allowed_imports=imports.PURE | imports.LIBRARIES | {"tool_use_base_env"},
    action=action,
    wrap=wrap,
    program=programs.extract_code,
    max_turns=25,
    max_cheat_rate=0.1,
    cheat_turns=25,
    uses_tools=True,
    malformed=malformed,
    calls_tools=calls_tools,
    designers={"tool_use": domain.text("tool_use_designer")},
    designer_system=domain.text("tool_use_designer_system"),
    agent=domain.text("tool_use_agent"),
    hint_system=domain.text("tool_use_hint_system"),
    hint=domain.text("hint"),
    screen=domain.text("tool_use_screen"),
)
