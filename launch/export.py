"""Write a policy as a Hugging Face directory.

    python -m launch.export --weights=FILE --output=DIR [--like=HF_DIR] [--role=agent]
    python -m launch.export --config=FILE --workdir=DIR --output=DIR [--step=N] ...

The first takes a .npz file, a .gguf file or a Hugging Face directory, the second a checkpoint of a
run, the newest by default. The directory loads in transformers. A "lowrank" head goes into one PEFT
adapter per role beside the model (`adapter_designer`, `adapter_agent`); a "separate" head is
written for the role of --role.
"""

from __future__ import annotations

import pathlib
import sys

from absl import app, flags
from ml_collections import config_flags

from launch import entry
from spade_jax import records

_WEIGHTS = flags.DEFINE_string("weights", "", "A .npz or .gguf file, or a Hugging Face directory.")
_CONFIG = config_flags.DEFINE_config_file("config", None, "Configuration of the run.")
_WORKDIR = flags.DEFINE_string("workdir", "", "Folder of the run.")
_STEP = flags.DEFINE_integer("step", None, "Checkpoint of the run; the newest by default.")
_OUTPUT = flags.DEFINE_string("output", None, "Directory to make.", required=True)
_LIKE = flags.DEFINE_string(
    "like", "", "Hugging Face directory whose tokenizer is copied; a run's own by default."
)
_ROLE = flags.DEFINE_enum("role", None, records.ROLES, "Role whose 'separate' head is exported.")


def main(argv: list[str]) -> None:
    """Export one policy."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments {argv[1:]}.")
    if bool(_WEIGHTS.value) == bool(_WORKDIR.value):
        raise app.UsageError("Give --weights, or --workdir and --config of a run.")
    if _WORKDIR.value and _CONFIG.value is None:
        raise app.UsageError("--workdir needs the --config of its run.")
    entry.set_up()
    with entry.one_paragraph():
        from spade_jax.policy import export

        params, config, like = _of_run() if _WORKDIR.value else _of_file()
        role = None if _ROLE.value is None else records.ROLES.index(_ROLE.value)
        output = pathlib.Path(_OUTPUT.value)
        like = _LIKE.value or like
        export.write(output, params, config, like=like, role=role)
        words = f"tokenizer of {like}" if like else "no tokenizer; --like names one to copy"
        print(f"{output}: {export.describe(config)['architectures'][0]}, {words}")
        if config.role_head == "lowrank":
            for number, name in enumerate(records.ROLES):
                folder = output / f"adapter_{name}"
                export.write_adapter(folder, params, config, number, str(output))
                print(f"{folder}: LoRA adapter of rank {config.role_rank} on lm_head")


def _of_file() -> tuple:
    """Read parameters and configuration of --weights."""
    from spade_jax.policy import load, weights

    path = pathlib.Path(_WEIGHTS.value)
    read = load.load if path.is_dir() or path.suffix == ".gguf" else weights.load
    return (*read(path), None)


def _of_run() -> tuple:
    """Read parameters and configuration of a checkpoint, and where the run's tokenizer lies."""
    from spade_jax import restored

    run = entry.settings_of(_CONFIG.value)
    found = restored.restore(run, _WORKDIR.value, _STEP.value)
    print(f"{found.folder}: step {found.step}")
    named = pathlib.Path(run.policy.weights)
    return found.train.params, found.model, named if run.policy.weights and named.is_dir() else None


if __name__ == "__main__":
    sys.exit(app.run(main))
