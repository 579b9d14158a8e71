"""Seed environment files: their header, their knobs, their code without the header.

A seed file opens with a docstring: one sentence, an empty line, then `key: value` lines. `knobs`
lists integer literals with the value each takes per difficulty word, as "4 -> 3 4 5; 9 -> 9 20 50".
"""

from __future__ import annotations

import ast
import dataclasses
import pathlib
import re
from collections.abc import Mapping

from spade_jax import programs, records

SETTINGS = ("compact", "games", "tool_use")
KINDS = ("single_turn", "multi_turn", "hidden_state")
SPLITS = ("train", "held_out")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeedFile:
    """One seed environment."""

    path: str
    summary: str  # first line of the header
    family: str
    skill: str  # one of records.SKILLS
    setting: str  # one of SETTINGS
    kind: str  # one of KINDS
    split: str  # one of SPLITS
    knobs: Mapping[int, tuple[int, int, int]]  # literal in the code -> easy, medium, hard
    code: str  # program text without the header
    difficulty: str = "medium"  # of the code as it stands
    hint: str | None = None  # that a policy wrote
    max_turns: int | None = None  # None leaves the limit to who plays it


def read(path: str | pathlib.Path) -> SeedFile:
    """Read one seed file.

    Raises:
      ValueError: the header lacks a key or holds a value that is not in its list.
    """
    source = pathlib.Path(path).read_text(encoding="utf-8")
    keys = header(source)
    if keys is None:
        raise ValueError(
            f"{path}: no header. Open the file with a docstring of `key: value` lines."
        )
    skills = records.SKILLS_OF.get(keys.get("setting", ""), records.SKILLS)
    choices = {"setting": SETTINGS, "skill": skills, "kind": KINDS, "split": SPLITS}
    for key in ("family", *choices):
        if key not in keys:
            raise ValueError(f"{path}: the header has no line `{key}: ...`. Add one.")
    for key, allowed in choices.items():
        if keys[key] not in allowed:
            raise ValueError(f"{path}: {key}: {keys[key]!r} must be one of {', '.join(allowed)}.")
    return SeedFile(
        path=str(path),
        summary=keys["summary"],
        family=keys["family"],
        skill=keys["skill"],
        setting=keys["setting"],
        kind=keys["kind"],
        split=keys["split"],
        knobs=parse_knobs(keys.get("knobs", ""), str(path)),
        code=without_header(source),
    )


def read_all(directory: str | pathlib.Path) -> list[SeedFile]:
    """Read every seed file below a directory, in order of their paths."""
    paths = sorted(pathlib.Path(directory).rglob("*.py"))
    return [read(path) for path in paths if path.name != "__init__.py"]


def header(source: str) -> dict[str, str] | None:
    """Read the header's keys, `summary` among them; None where there is no header."""
    tree = programs.parse(source)
    if isinstance(tree, programs.Finding):
        return None
    text = ast.get_docstring(tree)
    if text is None:
        return None
    lines = text.split("\n")
    keys = {"summary": lines[0].strip()}
    for line in lines[1:]:
        key, colon, value = line.partition(":")
        if colon and re.fullmatch(r"[a-z_]+", key.strip()):
            keys[key.strip()] = value.strip()
    return keys


def without_header(source: str) -> str:
    """Cut the module's docstring off; the code that stays ends in one newline."""
    tree = programs.parse(source)
    if isinstance(tree, programs.Finding) or ast.get_docstring(tree) is None:
        return source
    lines = source.split("\n")[tree.body[0].end_lineno :]
    return "\n".join(lines).strip("\n") + "\n"


def at_difficulty(seed: SeedFile, difficulty: str) -> str:
    """Write the program with its knobs turned to a difficulty word."""
    if difficulty not in records.DIFFICULTIES:
        allowed = ", ".join(records.DIFFICULTIES)
        raise ValueError(f"difficulty={difficulty!r} must be one of {allowed}.")
    column = records.DIFFICULTIES.index(difficulty)
    return turn_knobs(seed.code, {old: new[column] for old, new in seed.knobs.items()})


def turn_knobs(code: str, values: Mapping[int, int]) -> str:
    """Replace integer literals of the code, all at once; words in strings stay."""
    if not values:
        return code
    pattern = re.compile(r"(?<![\w.])(" + "|".join(map(str, values)) + r")(?![\w.])")
    pieces, position = [], 0
    for start, end in _wording(code):
        pieces.append(pattern.sub(lambda m: str(values[int(m[1])]), code[position:start]))
        pieces.append(code[start:end])
        position = end
    pieces.append(pattern.sub(lambda m: str(values[int(m[1])]), code[position:]))
    return "".join(pieces)


def parse_knobs(text: str, path: str = "") -> dict[int, tuple[int, int, int]]:
    """Read "4 -> 3 4 5; 9 -> 9 20 50"."""
    knobs = {}
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        match = re.fullmatch(r"(\d+)\s*->\s*(\d+)\s+(\d+)\s+(\d+)", part)
        if match is None:
            raise ValueError(
                f"{path}: knobs: {part!r} must read `literal -> easy medium hard`, four integers."
            )
        knobs[int(match[1])] = (int(match[2]), int(match[3]), int(match[4]))
    return knobs


def _wording(code: str) -> list[tuple[int, int]]:
    """List the spans of string literals that are words: f-string fields are left out."""
    spans = []
    for start, end, formatted in programs.literal_spans(code):
        position = start
        for opened, closed in programs.brace_groups(code, start, end) if formatted else ():
            spans.append((position, opened))
            position = closed
        spans.append((position, end))
    return spans
