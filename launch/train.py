"""Train: `python -m launch.train --config=experiments/quickstart.py --workdir=DIR [--config.x.y=v]`.

Runs what the configuration says: supervised start, self-play, or a fixed pool. The same command
again continues from the newest checkpoint in the work directory.
"""

from __future__ import annotations

import faulthandler
import os
import sys

from absl import app, flags, logging
from ml_collections import config_flags

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Configuration file; --config.section.key=value overrides one value."
)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run: checkpoints, metrics, samples.")


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(
            f"Unexpected arguments {argv[1:]}. Overrides look like --config.x.y=1."
        )
    faulthandler.enable()
    logging.set_verbosity(logging.WARNING)  # Orbax tells every save at INFO
    from launch import errors  # imports after flags, so that --help answers at once

    with errors.one_paragraph():
        from spade_jax import config, run, settings

        os.makedirs(_WORKDIR.value, exist_ok=True)
        run.run(config.build(settings.RunConfig, _CONFIG.value), _WORKDIR.value)


def console() -> None:
    """Entry point of the installed command."""
    flags.mark_flags_as_required(["config", "workdir"])
    app.run(main)


if __name__ == "__main__":
    sys.exit(console())
