"""Read what the public implementation of SPADE leaves behind: pools, dumps, caches, memory files.

In: a path. Out: candidates, each with its text or the fault that makes it unusable, and of the
sound ones entries of a pool. Formats (repository spade-rl/spade, commit 9b2b813):

* static pool: `games/game_*.py`, `manifest.jsonl`, `checksums.sha256` as sha256sum writes it;
* dump: `manifest.json` with {"games": [{"filename", "generation", "skill", "hint", ...}]} over
  files under `games/`;
* cache or plain folder: `game_*.py`, with `game_*_hint.txt` beside it where there is a hint;
* tool pool: JSON lines with `file_name`, `skill`, `sha256`, `code`;
* memory: JSON list with `game_file`, `skill`, `code_snippet`, `actor_win_rate`, `regret`.

Programs are text here; none is run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from spade_jax import fingerprints, memory, pool_files, programs, records

CHECKSUMS = "checksums.sha256"
_NAME = re.compile(r"game_(\d+)_(\d+)_(\w+)\.py")  # rollout, index, slug of the skill
_FILE_KEYS = ("filename", "file_name", "game_file", "file", "path")
BOUNDS = {"win_rate": (0, 1), "regret": (-2, 2)}  # returns lie in [-1, 1]
_KEPT = ("generation", "step", "rollout_id", "game_id", "source_run", "model_scale", "recipe")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """One environment as it was found."""

    name: str  # of its file
    content: bytes = b""
    skill: str = ""  # as written there, "" where nothing is said
    hint: str | None = None
    statistics: Mapping[str, float | None] = dataclasses.field(default_factory=dict)
    origin: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fault: str = ""  # why it cannot be used, "" where nothing is wrong yet


def read(source: pathlib.Path, files: pathlib.Path | None = None) -> list[Candidate]:
    """Read all candidates, in the order of the source.

    Args:
      files: folder with the whole programs of a memory file, which holds their first 2,000
        characters only.
    Raises:
      FileNotFoundError: the source does not exist.
      ValueError: it is none of the formats, or cannot be read as a whole.
    """
    if not source.exists():
        raise FileNotFoundError(f"{source} does not exist. Set --source to a folder or a file.")
    if source.is_file():
        if source.suffix == ".jsonl":
            return [_of_row(row, n) for n, row in enumerate(_lines(source), 1)]
        content = _json(source)
        if not isinstance(content, list):
            raise ValueError(f"{source} is no memory file: it holds no JSON list.")
        whole: dict[str, list[pathlib.Path]] = {}  # by name
        for path in [] if files is None else _files(files, "*.py"):
            whole.setdefault(path.name, []).append(path)
        return [_of_memory(row, n, whole) for n, row in enumerate(content)]
    if (source / CHECKSUMS).exists():
        return _static_pool(source)
    if (source / "manifest.json").exists():
        return _dump(source)
    paths = [p for p in _files(source, "*.py") if not p.name.startswith(("reject_", "__"))]
    if not paths:
        raise ValueError(f"{source} holds no programs (*.py). Set --source to another folder.")
    return [_of_file(path, path.relative_to(source).as_posix(), {}) for path in paths]


def take(
    candidates: Sequence[Candidate], skill: str = ""
) -> tuple[list[pool_files.Entry], dict[str, str]]:
    """Turn sound candidates into entries.

    Args:
      skill: given to programs whose own is not known here; "" refuses them.
    Returns:
      the entries; name -> reason of every candidate that was refused.
    """
    made, refused, names = [], {}, {}
    for number, one in enumerate(candidates):
        source, fault = _text(one)
        tree = programs.parse(source) if not fault else None
        if isinstance(tree, programs.Finding):
            fault = f"{tree.reason}: {tree.detail}"
        elif tree is not None and programs.environment_class(tree) is None:
            fault = "no class whose name ends in Env is defined"
        setting = programs.setting_of(source) if not fault else ""
        chosen = _skill(one, setting) or skill
        if not fault and source in names:
            fault = f"the same program as {names[source]}"
        elif not fault and chosen not in records.SKILLS_OF[setting]:
            fault = f"skill {one.skill or chosen!r} is none of setting {setting}; see --skill"
        if fault:
            refused[one.name if one.name not in refused else f"{one.name} ({number})"] = fault
            continue
        names[source] = one.name
        made.append(
            pool_files.Entry(
                family=f"imported_{number:06d}",
                source=source,
                setting=setting,
                skill=chosen,
                hint=one.hint,
                statistics=one.statistics,
                origin={"name": one.name, "digest": fingerprints.digest(tree), **one.origin},
            )
        )
    return made, refused


def _static_pool(source: pathlib.Path) -> list[Candidate]:
    """Read a pool whose files have checksums; each file must have the one that is listed."""
    sums = {}
    for line in (source / CHECKSUMS).read_text(encoding="utf-8").splitlines():
        digest, _, name = line.strip().partition(" ")
        if line.strip():
            sums[name.lstrip(" *").removeprefix("./")] = digest.lower()
    listed = source / "manifest.jsonl"
    rows = {}
    for row in _lines(listed) if listed.exists() else ():
        if isinstance(row, dict) and (name := _file_of(row)):
            rows[pathlib.PurePosixPath(name).name] = row
    there = {path.relative_to(source).as_posix(): path for path in _files(source, "game_*.py")}
    named = [name for name in sums if name.endswith(".py")]
    found = []
    for name in sorted({*named, *there}):
        if name not in there:
            found.append(Candidate(name=name, fault="the file is missing"))
            continue
        one = _of_file(there[name], name, rows.get(there[name].name, {}))
        if name not in sums:
            one = dataclasses.replace(one, fault=f"it is not listed in {CHECKSUMS}")
        elif hashlib.sha256(one.content).hexdigest() != sums[name]:
            one = dataclasses.replace(one, fault=f"its checksum is not the one in {CHECKSUMS}")
        found.append(one)
    return found


def _dump(source: pathlib.Path) -> list[Candidate]:
    content = _json(source / "manifest.json")
    games = content.get("games") if isinstance(content, dict) else None
    if not isinstance(games, list):
        raise ValueError(f"{source / 'manifest.json'} has no list `games`: it is no dump.")
    there = {path.relative_to(source).as_posix(): path for path in _files(source, "*.py")}
    found = []
    for number, row in enumerate(games):
        name = _file_of(row) if isinstance(row, dict) else ""
        if not name:
            found.append(Candidate(name=f"games[{number}]", fault="it names no file"))
            continue
        generation = row.get("generation")
        folder = f"gen_{generation:04d}/" if isinstance(generation, int) else ""
        ends = [p for p in there if p == name or p.endswith(f"/{folder}{name}")]
        if len(ends) == 1:
            found.append(_of_file(there[ends[0]], ends[0], row))
        else:
            fault = "the file is missing" if not ends else f"{len(ends)} files have this name"
            found.append(Candidate(name=name, fault=fault))
    return found


def _of_file(path: pathlib.Path, name: str, row: Mapping[str, Any]) -> Candidate:
    hint_path = path.with_name(f"{path.stem}_hint.txt")
    hint = row.get("hint")
    if hint is None and hint_path.exists():
        hint = hint_path.read_text(encoding="utf-8", errors="replace")
    return Candidate(
        name=name,
        content=path.read_bytes(),
        skill=str(row.get("skill") or ""),
        hint=hint.strip() if isinstance(hint, str) and hint.strip() else None,
        origin=_origin(row),
    )


def _of_row(row: Any, number: int) -> Candidate:
    """Read a line of a tool pool."""
    if not isinstance(row, dict) or not isinstance(row.get("code"), str):
        return Candidate(name=f"line {number}", fault="it is no object with a text `code`")
    content = row["code"].encode("utf-8", errors="surrogatepass")
    digest, fault = row.get("sha256"), ""
    if digest is not None and hashlib.sha256(content).hexdigest() != digest:
        fault = "its code has another checksum than its `sha256`"
    return Candidate(
        name=_file_of(row) or f"line {number}",
        content=content,
        skill=str(row.get("skill") or ""),
        origin=_origin(row),
        fault=fault,
    )


def _of_memory(
    row: Any, number: int, programs_of: Mapping[str, Sequence[pathlib.Path]]
) -> Candidate:
    name = _file_of(row) if isinstance(row, dict) else ""
    code = row.get("code_snippet") if isinstance(row, dict) else None
    if not name or not isinstance(code, str):
        return Candidate(name=name or f"entry {number}", fault="no `game_file` or `code_snippet`")
    base, fault = pathlib.PurePosixPath(name).name, ""
    statistics = {"win_rate": row.get("actor_win_rate"), "regret": row.get("regret")}
    for key, value in statistics.items():
        if value is not None and not _is_number(value, BOUNDS[key]):
            statistics[key], fault = None, f"its {key} {value!r} is no number in its range"
    if len(code) >= memory.SNIPPET_CHARACTERS:
        whole = programs_of.get(base, ())
        texts = {path.read_bytes() for path in whole}
        if len(texts) == 1 and texts != {b""}:
            content = texts.pop()
            if not content.decode("utf-8", errors="replace").startswith(code):
                fault = fault or f"{whole[0]} does not begin like its code_snippet"
        else:
            content, few = b"", "no" if not texts else "more than one"
            fault = fault or (
                f"its program is cut after {memory.SNIPPET_CHARACTERS} characters, and {few} "
                "whole one was found; see --files"
            )
    else:
        content = code.encode("utf-8", errors="surrogatepass")
    origin = _origin(row)
    return Candidate(
        name=name, content=content, skill=str(row.get("skill") or ""), statistics=statistics,
        origin=origin, fault=fault,
    )  # fmt: skip


def _origin(row: Mapping[str, Any]) -> dict[str, Any]:
    """Keep what says where an environment comes from, as far as it is plain."""
    return {k: row[k] for k in _KEPT if isinstance(row.get(k), (str, int))}


def _is_number(value: Any, bounds: tuple[float, float]) -> bool:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return plain and math.isfinite(value) and bounds[0] <= value <= bounds[1]


def _text(one: Candidate) -> tuple[str, str]:
    """Read a candidate's bytes; returns the text, and a fault or ""."""
    if one.fault:
        return "", one.fault
    try:
        return one.content.decode("utf-8"), ""
    except UnicodeDecodeError as error:
        return "", f"it is no UTF-8: {error.reason} at byte {error.start}"


def _skill(one: Candidate, setting: str) -> str:
    """Name the skill as `records` does, from what is written or from the file's name."""
    named = _NAME.fullmatch(pathlib.PurePosixPath(one.name).name)
    slugs = {_slug(skill): skill for skill in records.SKILLS_OF.get(setting, ())}
    return slugs.get(_slug(one.skill or (named[3] if named else "")), "")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _file_of(row: Mapping[str, Any]) -> str:
    found = [row[key] for key in _FILE_KEYS if isinstance(row.get(key), str) and row[key]]
    return found[0] if found else ""


def _files(folder: pathlib.Path, pattern: str) -> list[pathlib.Path]:
    return sorted(path for path in folder.rglob(pattern) if path.is_file())


def _json(path: pathlib.Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON: {error}. Restore the file.") from error


def _lines(path: pathlib.Path) -> list[Any]:
    """Read JSON lines; one that cannot be read is None."""
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.strip():
            try:
                found.append(json.loads(line))
            except (ValueError, RecursionError):
                found.append(None)
    return found
