"""Train: `python -m launch.train --config=FILE --workdir=DIR [--config.x.y=value]`.

Runs what the configuration says: supervised start, self-play, or a fixed pool. The same command
again continues from the newest checkpoint in the work directory.
"""

from __future__ import annotations

import sys

from absl import app, flags
from ml_collections import config_flags

from launch import entry, overrides

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Configuration file; --config.section.key=value overrides one value."
)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run: checkpoints, metrics, samples.")


def main(argv: list[str]) -> None:
    """Run what the flags say."""
    if len(argv) > 1:
        raise app.UsageError(
            f"Unexpected arguments {argv[1:]}. Overrides look like --config.x.y=1."
        )
    entry.set_up()
    with entry.one_paragraph():
        from spade_jax import run

        run.run(entry.settings_of(_CONFIG.value), _WORKDIR.value)


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "workdir"])
    sys.exit(app.run(main, flags_parser=overrides.parse_flags))
