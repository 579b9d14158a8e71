"""Games: single-turn puzzles, multi-turn games and grounded worlds, answered with \\boxed{...}."""

from __future__ import annotations

import re

from spade_jax import programs
from spade_jax.domains import domain, imports

_BOX = re.compile(r"\\boxed\s*\{")
_TEXT = re.compile(r"\\text\s*\{")
MAX_PEELED = 2  # extra layers of braces around a box's content


def action(reply: str) -> str:
    """Turn a reply into the action that is sent: the last box that holds something, boxed anew.

    Without such a box the stripped reply is sent, thinking text dropped.
    Source: SPADE's public implementation; differs in that the last box wins, thinking text is
    dropped in both arms, and a `\\text{...}` around the whole content is taken off.
    """
    content = boxed(reply)
    return wrap(content) if content else _after_thinking(reply).strip()


def wrap(content: str) -> str:
    """Write content as an action."""
    return content if _BOX.search(content) else f"\\boxed{{{content}}}"


def boxed(reply: str) -> str | None:
    """Read the last closed box that is not empty; "" where all are empty, None without any."""
    text = _after_thinking(reply)
    partner = _brace_partners(text)
    found = None
    for match in reversed(list(_BOX.finditer(text))):
        opened = match.end() - 1
        if opened in partner:
            found = text[opened + 1 : partner[opened]].strip()
            if found:
                return _without_text_wrapper(_peel(found))
    return found


def _after_thinking(reply: str) -> str:
    return reply.rsplit("</think>", 1)[-1]


def _brace_partners(text: str) -> dict[int, int]:
    """Map each opening brace to the brace that closes it, in one pass."""
    partner, waiting = {}, []
    for i, char in enumerate(text):
        if char == "{":
            waiting.append(i)
        elif char == "}" and waiting:
            partner[waiting.pop()] = i
    return partner


def _peel(content: str) -> str:
    for _ in range(MAX_PEELED):
        if not content.startswith("{") or _brace_partners(content).get(0) != len(content) - 1:
            break
        content = content[1:-1].strip()
    return content


def _without_text_wrapper(content: str) -> str:
    match = _TEXT.match(content)
    if match and _brace_partners(content).get(match.end() - 1) == len(content) - 1:
        return content[match.end() : -1].strip()
    return content


DOMAIN = domain.Domain(
    name="games",
    prelude=imports.INJECTED + "from tool_use_base_env import ToolUseBaseEnv\n",
    modules={
        "tool_use_base_env": domain.guest("tool_use_base_env"),
        "qa_env": domain.guest("qa_env"),
    },
    allowed_imports=imports.PURE | imports.LIBRARIES | {"qa_env", "tool_use_base_env"},
    action=action,
    wrap=wrap,
    program=programs.extract_code,
    max_turns=25,
    max_cheat_rate=0.1,
    cheat_turns=25,
    uses_tools=False,
    designers={
        "corpus": domain.text("games_corpus"),
        "single_turn": domain.text("games_single_turn"),
        "multi_turn": domain.text("games_multi_turn"),
    },
    designer_system=domain.text("games_designer_system"),
    agent=domain.text("games_agent"),
    hint_system=domain.text("games_hint_system"),
    hint=domain.text("hint"),
    screen=domain.text("games_screen"),
)
