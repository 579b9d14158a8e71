"""Train: `python -m launch.train --config=FILE --workdir=DIR [--config.x.y=value]`.

Runs what the configuration says: supervised start, self-play, or a fixed pool. The same command
again continues from the newest checkpoint in the work directory.

On several hosts the same command runs on each, with a work directory that all see: on a TPU slice
with `--coordinator=auto`, elsewhere with `--coordinator=HOST:PORT --processes=N --process=I`.
"""

from __future__ import annotations

import shlex
import sys

from absl import app, flags
from ml_collections import config_flags

from launch import entry, overrides

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Configuration file; --config.section.key=value overrides one value."
)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run: checkpoints, metrics, samples.")
_COORDINATOR = flags.DEFINE_string(
    "coordinator", "", "HOST:PORT of the first process of a run over several; auto on TPU slices."
)
_PROCESSES = flags.DEFINE_integer("processes", 1, "How many processes form the run.")
_PROCESS = flags.DEFINE_integer("process", 0, "Index of this one, from 0.")


def main(argv: list[str]) -> None:
    """Run what the flags say."""
    if len(argv) > 1:
        raise app.UsageError(
            f"Unexpected arguments {argv[1:]}. Overrides look like --config.x.y=1."
        )
    entry.set_up()
    with entry.one_paragraph():
        entry.join_cluster(_COORDINATOR.value, _PROCESSES.value, _PROCESS.value)
        from spade_jax import run

        run.run(entry.settings_of(_CONFIG.value), _WORKDIR.value)
        if _PROCESS.value == 0:
            print(_next())


def _next() -> str:
    """Tell commands that go on from a finished run, as they may be typed."""
    same = [word for word in sys.argv[1:] if not word.startswith(("--coordinator", "--process"))]
    evaluate = shlex.join([sys.executable, "-m", "launch.evaluate", *same])
    return (
        f"  next:  {evaluate}\n"
        f"         tensorboard --logdir {_WORKDIR.value}/tensorboard   (pip install tensorboard)"
    )


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "workdir"])
    sys.exit(app.run(main, flags_parser=overrides.parse_flags))
