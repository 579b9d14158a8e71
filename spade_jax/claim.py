"""A work directory belongs to one configuration, kept in its `config.json`.

In: the configuration of a start. Out: nothing where it is the one that the directory was begun
with, or an error that names every knob that differs. A start first compares, and takes the
directory only when everything else that it needs is there.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

from etils import epath

from spade_jax import config, files

NAME = "config.json"
_ROOT = pathlib.Path(__file__).resolve().parent.parent
FREE = (
    "checkpoint.",
    "evaluate.every",
    "sandbox.",
    "mesh.",
    "hosts.",
)  # knobs that any start may change
MESH = "mesh."
RISING = "iterations"  # a later start may ask for more
LEFTOVERS = (
    *("results.json", "checkpoints", "warmstart", "policy.npz"),
    *("tokenizer.json", "lessons.jsonl"),
)


def compare(folder: epath.Path, now: Any) -> list[str]:
    """Compare a configuration with the one that the run in a folder began with; writes nothing.

    Args:
      now: dataclass of the whole configuration.
    Returns:
      knobs of the mesh that differ from the last start: numbers are then equal to rounding only.
    Raises:
      config.ConfigError: knobs differ, or the directory holds a run without a configuration.
    """
    path = folder / NAME
    knobs = _knobs(now)
    moved = []
    if path.exists():
        then = read(path)
        _compare(then, knobs, path)
        moved = [k for k in knobs if k.startswith(MESH) and then.get(k) != knobs[k]]
    else:
        found = [name for name in LEFTOVERS if (folder / name).exists()]
        if found:
            raise config.ConfigError(
                f"{folder} holds {', '.join(found)} but no {NAME}: nobody can say which "
                "configuration made them. Set --workdir to another directory, or remove them."
            )
    return moved


def take(folder: epath.Path, now: Any) -> None:
    """Write a configuration that `compare` has let pass.

    Raises:
      OSError: the directory cannot be written.
    """
    files.replace(folder / NAME, json.dumps(_knobs(now), indent=1) + "\n")


def read(path: epath.Path) -> dict[str, str]:
    """Read knobs and their values, written as Python does.

    Raises:
      config.ConfigError: the file is not what `claim` wrote.
    """
    try:
        knobs = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): str(value) for name, value in knobs.items()}
    except (ValueError, AttributeError) as error:
        raise config.ConfigError(
            f"{path} is damaged ({error}). Set --workdir to another directory."
        ) from error


def _knobs(now: Any) -> dict[str, str]:
    """List knobs; a path inside this project is written from its root, so that another checkout
    may go on with the run."""
    text = config.describe(now).replace(f"'{_ROOT}/", "'")
    return dict(line.split(" = ", 1) for line in text.splitlines())


def _compare(then: dict[str, str], now: dict[str, str], path: epath.Path) -> None:
    differing = []
    for name in sorted(then.keys() | now.keys()):
        before, after = then.get(name, "(absent)"), now.get(name, "(absent)")
        if before == after or name.startswith(FREE):
            continue
        if name == RISING and before.isdigit() and after.isdigit() and int(after) > int(before):
            continue
        differing.append(f"{name} = {before} then, {after} now")
    if differing:
        raise config.ConfigError(
            f"the run in {path.parent} began with another configuration ({path.name}): "
            f"{'; '.join(differing)}. Give the values it began with, or set --workdir to another "
            "directory. Only iterations may rise, and checkpoint.*, hosts.*, mesh.*, sandbox.* and "
            "evaluate.every may change."
        )
