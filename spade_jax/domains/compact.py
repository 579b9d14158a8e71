"""Compact questions: programs of 60 to 120 tokens over `QAEnv`, for policies too small to prompt.

Prompts are one short line: such a policy has learned what to write and reads no instructions.
"""

from __future__ import annotations

from spade_jax import programs
from spade_jax.domains import domain, games, imports

DOMAIN = domain.Domain(
    name="compact",
    prelude="import collections, functools, itertools, math, random, re, string\n"
    "from qa_env import QAEnv\n",
    modules={"qa_env": domain.guest("qa_env")},
    allowed_imports=imports.PURE | imports.LIBRARIES | {"qa_env"},
    action=games.action,
    wrap=games.wrap,
    program=programs.extract_code,
    max_turns=4,
    max_cheat_rate=0.3,
    cheat_turns=1,
    uses_tools=False,
    designers={"compact": domain.text("compact_designer")},
    agent=domain.text("compact_agent"),
    hint=domain.text("compact_hint"),
    screen=domain.text("games_screen"),
)
