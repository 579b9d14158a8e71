"""A work directory belongs to one configuration, kept in its `config.json`.

In: the configuration of a start. Out: nothing where it is the one that the directory was begun
with, or an error that names every knob that differs.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

from spade_jax import config

NAME = "config.json"
FREE = ("checkpoint.", "evaluate.every", "sandbox.")  # knobs that any start may change
RISING = "iterations"  # a later start may ask for more
LEFTOVERS = (
    *("results.json", "checkpoints", "warmstart", "policy.npz"),
    *("tokenizer.json", "lessons.jsonl"),
)


def claim(folder: pathlib.Path, now: Any) -> None:
    """Write the configuration of a new run, or compare it with the one that the run began with.

    Args:
      now: dataclass of the whole configuration.
    Raises:
      config.ConfigError: knobs differ, or the directory holds a run without a configuration.
      OSError: the directory cannot be written.
    """
    path = folder / NAME
    knobs = dict(line.split(" = ", 1) for line in config.describe(now).splitlines())
    if path.exists():
        _compare(read(path), knobs, path)
    else:
        found = [name for name in LEFTOVERS if (folder / name).exists()]
        if found:
            raise config.ConfigError(
                f"{folder} holds {', '.join(found)} but no {NAME}: nobody can say which "
                "configuration made them. Set --workdir to another directory, or remove them."
            )
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(knobs, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def read(path: pathlib.Path) -> dict[str, str]:
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


def _compare(then: dict[str, str], now: dict[str, str], path: pathlib.Path) -> None:
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
            "directory. Only iterations may rise, and checkpoint.*, sandbox.* and evaluate.every "
            "may change."
        )
