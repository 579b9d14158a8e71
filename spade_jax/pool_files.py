"""A pool of environments as a directory: one seed file each, and a manifest with checksums.

In: entries. Out: `environments/FAMILY.py`, each with a header that `seed_files` reads, and
`manifest.json`: SHA-256 of every file, statistics, hints, where everything comes from. The
directory appears whole or not at all, and is read only if every file is what the manifest says.
Programs are text here; none is run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from spade_jax import records

MANIFEST = "manifest.json"
FORMAT = "spade_jax pool 1"
FOLDER = "environments"
NAMED = 5  # faults that one error lists
_FIELDS = {  # of one row of the manifest that are read back -> what they may be
    "file": str,
    "sha256": str,
    "difficulty": str,
    "max_turns": (int, type(None)),
    "hint": (str, type(None)),
}
_HEADER = '''"""Environment {family} of a pool.

family: {family}
skill: {skill}
setting: {setting}
kind: {kind}
split: train{knobs}
"""

'''


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One environment of a pool."""

    family: str  # its name, which no other entry has
    source: str  # program text; untrusted
    setting: str  # a key of records.SKILLS_OF
    skill: str
    difficulty: str = "medium"
    max_turns: int | None = None  # None leaves the limit to who plays it
    knobs: str = ""  # of the source, as the header of a seed file writes them
    hint: str | None = None  # written by a policy
    statistics: Mapping[str, float | None] = dataclasses.field(default_factory=dict)
    origin: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", self.family):
            raise ValueError(
                f"family={self.family!r} is no file name: use letters, digits, _, . and -, and "
                "begin with a letter or digit."
            )
        if self.skill not in records.SKILLS_OF.get(self.setting, ()):
            raise ValueError(
                f"{self.family}: setting {self.setting!r} has no skill {self.skill!r}; use one of "
                f"{', '.join(records.SKILLS_OF.get(self.setting, ())) or 'another setting'}."
            )


def write(
    folder: str | os.PathLike, entries: Sequence[Entry], provenance: Mapping[str, Any]
) -> None:
    """Write a pool.

    Args:
      folder: made anew; its name with `.partial` holds what is not whole yet.
      provenance: JSON-able; where the pool as a whole comes from.
    Raises:
      FileExistsError: the folder exists.
      ValueError: there is no entry, or two have one family.
    """
    folder = pathlib.Path(folder)
    if folder.exists():
        raise FileExistsError(f"{folder} exists; name another directory for the pool.")
    families = [entry.family for entry in entries]
    twice = sorted({family for family in families if families.count(family) > 1})
    if twice or not entries:
        raise ValueError(
            f"{folder}: families {twice} stand in it twice." if twice else "A pool needs an entry."
        )
    partial = folder.with_name(folder.name + ".partial")
    if partial.exists():
        shutil.rmtree(partial)  # of an export that was killed
    (partial / FOLDER).mkdir(parents=True)
    rows = [_write_one(partial, entry) for entry in entries]
    manifest = {"format": FORMAT, "provenance": dict(provenance), "environments": rows}
    text = json.dumps(manifest, indent=1, allow_nan=False) + "\n"
    (partial / MANIFEST).write_text(text, encoding="utf-8")
    partial.rename(folder)


def read(folder: str | os.PathLike) -> dict[pathlib.Path, dict[str, Any]]:
    """Read the manifest of a pool and check every file against it.

    Returns:
      path of each environment's file -> its row of the manifest.
    Raises:
      ValueError: the manifest cannot be read, or files are damaged, missing or not in it; names
        them.
    """
    folder = pathlib.Path(folder)
    rows = _rows(folder / MANIFEST)
    found, faults = {}, []
    for row in rows:
        path = folder / row["file"]
        if not path.is_file():
            faults.append(f"{row['file']} is missing")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != row["sha256"]:
            faults.append(f"{row['file']} is damaged: it has another checksum than in {MANIFEST}")
        found[path] = row
    strays = sorted(path for path in folder.rglob("*.py") if path not in found)
    faults += [f"{path.relative_to(folder)} is not in {MANIFEST}" for path in strays]
    if faults:
        more = f", and {len(faults) - NAMED} more" if len(faults) > NAMED else ""
        raise ValueError(
            f"pool {folder}: {'; '.join(faults[:NAMED])}{more}. Restore the files, or export the "
            "pool again."
        )
    return found


def packages(folder: str | os.PathLike) -> list[str]:
    """List the distributions that the programs of a pool import, as its manifest says; none where
    the folder is no pool."""
    path = pathlib.Path(folder) / MANIFEST
    if not path.exists():
        return []
    provenance = json.loads(path.read_text(encoding="utf-8")).get("provenance")
    named = provenance.get("packages") if isinstance(provenance, dict) else None
    return list(named) if isinstance(named, (dict, list)) else []


def _write_one(folder: pathlib.Path, entry: Entry) -> dict[str, Any]:
    """Write one file; returns its row of the manifest."""
    name = f"{FOLDER}/{entry.family}.py"
    kind = "single_turn" if entry.max_turns == 1 else "multi_turn"
    header = _HEADER.format(
        family=entry.family,
        skill=entry.skill,
        setting=entry.setting,
        kind=kind,
        knobs=entry.knobs and f"\nknobs: {entry.knobs}",
    )
    content = (header + entry.source.strip("\n") + "\n").encode()
    (folder / name).write_bytes(content)
    row = {f.name: getattr(entry, f.name) for f in dataclasses.fields(entry)}
    del row["source"]
    return {
        "file": name,
        "sha256": hashlib.sha256(content).hexdigest(),
        **row,
        "statistics": dict(entry.statistics),
        "origin": dict(entry.origin),
    }


def _rows(path: pathlib.Path) -> list[dict[str, Any]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}. Export the pool again.") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(
            f"{path} is no manifest of {FORMAT!r}. A pool of the public implementation becomes one "
            "with `python -m launch.import_pool`."
        )
    rows = content.get("environments")
    for number, row in enumerate(rows if isinstance(rows, list) else [None]):
        wrong = [
            name
            for name, kind in _FIELDS.items()
            if not isinstance(row, dict) or not isinstance(row.get(name, _FIELDS), kind)
        ]
        parts = () if wrong else pathlib.PurePath(row["file"]).parts
        if not parts or ".." in parts or pathlib.PurePath(*parts).is_absolute():
            raise ValueError(
                f"{path} is damaged: its environment {number} has no usable "
                f"{', '.join(wrong) or 'file'}. Export the pool again."
            )
    return rows
