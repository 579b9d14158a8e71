"""Evaluate a checkpoint: `python -m launch.evaluate --config=FILE --workdir=DIR [--step=N]`.

Scores new instances of known families and held-out families with the parameters of one step of a
run (the newest by default), and writes `DIR/evaluations/STEP.json`.
"""

from __future__ import annotations

import json
import pathlib
import sys

from absl import app, flags, logging
from ml_collections import config_flags

_CONFIG = config_flags.DEFINE_config_file("config", None, "Configuration of the run.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.")
_STEP = flags.DEFINE_integer("step", None, "Iteration to score; the newest by default.")


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments {argv[1:]}.")
    logging.set_verbosity(logging.WARNING)
    from launch import errors

    with errors.one_paragraph():
        from spade_jax import config, run, settings

        built = config.build(settings.RunConfig, _CONFIG.value)
        record = run.evaluate_step(built, _WORKDIR.value, _STEP.value)
        folder = pathlib.Path(_WORKDIR.value) / "evaluations"
        folder.mkdir(exist_ok=True)
        path = folder / f"{record['iteration']:06d}.json"
        temporary = path.with_suffix(".part")
        temporary.write_text(json.dumps(record, indent=1), encoding="utf-8")
        temporary.replace(path)
        print(f"written to {path}")


def console() -> None:
    """Entry point of the installed command."""
    flags.mark_flags_as_required(["config", "workdir"])
    app.run(main)


if __name__ == "__main__":
    sys.exit(console())
