"""Write the environments of a run as a pool: `python -m launch.export_pool --config=FILE
--workdir=DIR --output=POOL [--which=pool|remembered|all] [--step=N]`.

`--config.mode=fixed_pool --config.pool_folder=POOL` trains on it. No program is run.
"""

from __future__ import annotations

import sys

from absl import app, flags
from ml_collections import config_flags

from launch import entry

_CONFIG = config_flags.DEFINE_config_file("config", None, "Configuration of the run.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "Directory to make.", required=True)
_STEP = flags.DEFINE_integer("step", None, "Checkpoint; the newest by default.")
_WHICH = flags.DEFINE_enum(
    "which",
    "pool",
    ("pool", "remembered", "all"),
    "Environments alive, those remembered too, or all that ever were.",
)


def main(argv: list[str]) -> None:
    """Export one pool."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments {argv[1:]}.")
    entry.set_up()
    with entry.one_paragraph():
        import jax

        from spade_jax import claim, pool_export, pool_files, restored

        config = entry.settings_of(_CONFIG.value)
        found = restored.restore(config, _WORKDIR.value, _STEP.value)
        counts = jax.device_get(found.train.curriculum)
        current = restored.pool_of(found)
        made = pool_export.entries(current, counts.visits_P, counts.plays_P, _WHICH.value)
        current.archive.close()
        if not made:
            raise ValueError(f"{found.folder}: the pool of step {found.step} is empty.")
        provenance = {
            "kind": "run",
            "workdir": str(found.folder),
            "step": found.step,
            "which": _WHICH.value,
            "config": claim.read(found.folder / claim.NAME),
        }
        pool_files.write(_OUTPUT.value, made, provenance)
        hinted = sum(one.hint is not None for one in made)
        print(f"{_OUTPUT.value}: {len(made)} environments of step {found.step}, {hinted} hints")


if __name__ == "__main__":
    flags.mark_flag_as_required("config")
    sys.exit(app.run(main))
