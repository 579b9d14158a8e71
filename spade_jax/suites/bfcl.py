"""BFCL multi-turn: user turns, tools that act on a state, reference calls to compare with.

In: the folder of the unpacked package (`pip download --no-deps bfcl-eval`; installing it would pin
NumPy 1.26). Only its data files and the text of its API classes are read; they run in the sandbox.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from spade_jax import records
from spade_jax.suites import code, environments, suite

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
_GUEST = pathlib.Path(__file__).parent / "guest" / "bfcl_env.py"
_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
_CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
_STEPS_PER_TURN = 20
_USED_BY_OTHERS = "long_context"  # module that the API modules import


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One task, with what its reference does."""

    environment: records.Environment
    answers: list[list[str]]  # reference calls of each turn, as Python
    parameters: dict[str, list[str]]  # tool -> names of its parameters, in order


def multi_turn(folder: str) -> suite.Suite:
    """Read the four multi-turn categories, those of them whose files are there.

    Raises:
      FileNotFoundError: the folder does not hold the package.
    """
    found = {task.environment.family: task.environment for task in programs_of(folder)}
    return environments.of("bfcl_multi_turn", found, 1, "test")


def programs_of(folder: str) -> list[Task]:
    """Write every task as a program.

    Raises:
      FileNotFoundError: the folder does not hold the package.
    """
    home = pathlib.Path(folder)
    home = home if (home / "data").is_dir() else home / "bfcl_eval"
    apis = home / "eval_checker" / "multi_turn_eval" / "func_source_code"
    present = [c for c in CATEGORIES if (home / "data" / _file(c)).exists()]
    if not present or not apis.is_dir():
        raise FileNotFoundError(
            f"{folder} is not the unpacked package bfcl-eval: it lacks data/{_file('base')} or its "
            "API classes. Run `pip download --no-deps bfcl-eval` and unzip the wheel."
        )
    sources = {p.stem: p.read_text(encoding="utf-8") for p in sorted(apis.glob("*.py"))}
    modules = {name: stem for stem, text in sources.items() for name in _CLASS.findall(text)}
    docs = {
        stem: code.read_lines(path)
        for stem in sources
        if (path := home / "data" / "multi_turn_func_doc" / f"{stem}.json").exists()
    }
    found: list[Task] = []
    for category in present:
        answers = {
            row["id"]: row["ground_truth"]
            for row in code.read_lines(home / "data" / "possible_answer" / _file(category))
        }
        for row in code.read_lines(home / "data" / _file(category)):
            stems = [modules[name] for name in row["involved_classes"]]
            text = _program(row, answers[row["id"]], stems, sources, docs)
            tools = [doc for stem in stems for doc in docs[stem]]
            found.append(
                Task(
                    environment=_environment(row, text, -1 - len(found)),
                    answers=answers[row["id"]],
                    parameters={
                        doc["name"]: list(doc["parameters"]["properties"]) for doc in tools
                    },
                )
            )
    return found


def _file(category: str) -> str:
    return f"BFCL_v4_multi_turn_{category}.json"


def _program(row: Mapping, answers: list, stems: list[str], sources: Mapping, docs: Mapping) -> str:
    needed = [_USED_BY_OTHERS, *stems] if _USED_BY_OTHERS in sources else stems
    held_back = {name for names in row.get("missed_function", {}).values() for name in names}
    without = held_back | set(row.get("excluded_function", ()))
    every = {doc["name"]: _tool(doc) for stem in stems for doc in docs[stem]}
    later = {
        turn: [every[name] for name in names]
        for turn, names in row.get("missed_function", {}).items()
    }
    content = [
        {key: row[key] for key in ("id", "question", "initial_config", "involved_classes")},
        answers,
        [[stem, sources[stem]] for stem in dict.fromkeys(needed)],
        [tool for name, tool in every.items() if name not in without],
        later,
    ]
    guest = _GUEST.read_text(encoding="utf-8")
    return guest.replace("__DATA__", repr(json.dumps(content)))


def _environment(row: Mapping, text: str, uid: int) -> records.Environment:
    """Make the record without parsing: the text is our own, and that of 800 tasks is 200 MB."""
    return records.Environment(
        uid=uid,
        source=text,
        setting="tool_use",
        skill=records.SKILLS_OF["tool_use"][0],
        difficulty="medium",
        generation=-1,
        class_name="BfclEnv",
        digest=hashlib.sha256(text.encode()).hexdigest(),
        max_turns=_STEPS_PER_TURN * len(row["question"]),
        family=row["id"],
    )


def _tool(doc: Mapping) -> dict:
    """Write a function's description as a tool."""
    chosen = {key: doc[key] for key in ("name", "description")}
    return {"type": "function", "function": chosen | {"parameters": _schema(doc["parameters"])}}


def _schema(value: Any) -> Any:
    """Give types the names that JSON Schema has for them."""
    if isinstance(value, dict):
        return {
            key: _TYPES.get(entry, entry)
            if key == "type" and isinstance(entry, str)
            else _schema(entry)
            for key, entry in value.items()
        }
    return [_schema(entry) for entry in value] if isinstance(value, list) else value
