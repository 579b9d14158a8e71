"""Evaluate a checkpoint: `python -m launch.evaluate --config=FILE --workdir=DIR [--step=N]`.

Scores new instances of known families and held-out families with the parameters of one step of a
run (the newest by default), and writes `DIR/evaluations/STEP.json`.
"""

from __future__ import annotations

import json
import pathlib
import sys

from absl import app, flags
from ml_collections import config_flags

from launch import entry, overrides

_CONFIG = config_flags.DEFINE_config_file("config", None, "Configuration of the run.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.")
_STEP = flags.DEFINE_integer("step", None, "Iteration to score; the newest by default.")


def main(argv: list[str]) -> None:
    """Score what the flags name."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments {argv[1:]}.")
    entry.set_up()
    with entry.one_paragraph():
        from spade_jax import run

        record = run.evaluate_step(entry.settings_of(_CONFIG.value), _WORKDIR.value, _STEP.value)
        path = pathlib.Path(_WORKDIR.value) / "evaluations" / f"{record['iteration']:06d}.json"
        path.parent.mkdir(exist_ok=True)
        temporary = path.with_suffix(".part")
        temporary.write_text(json.dumps(record, indent=1), encoding="utf-8")
        temporary.replace(path)
        print(f"written to {path}")


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "workdir"])
    sys.exit(app.run(main, flags_parser=overrides.parse_flags))
