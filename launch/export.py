"""Write a policy as a Hugging Face directory: `python -m launch.export --weights=... --output=...`.

The directory loads in transformers. A "lowrank" head goes into one PEFT adapter per role beside the
model (`adapter_designer`, `adapter_agent`); a "separate" head is written for the role of --role.
"""

from __future__ import annotations

import pathlib
import sys

from absl import app, flags

from launch import entry
from spade_jax import records
from spade_jax.policy import export, load, weights

_WEIGHTS = flags.DEFINE_string(
    "weights", "", "A .npz file of a run, or a .gguf file.", required=True
)
_OUTPUT = flags.DEFINE_string("output", "", "Directory to make.", required=True)
_LIKE = flags.DEFINE_string("like", "", "Hugging Face directory whose tokenizer is copied.")
_ROLE = flags.DEFINE_enum("role", None, records.ROLES, "Role whose 'separate' head is exported.")


def main(_: list[str]) -> None:
    """Export one policy."""
    entry.set_up()
    with entry.one_paragraph():
        path = pathlib.Path(_WEIGHTS.value)
        read = load.load if path.is_dir() or path.suffix == ".gguf" else weights.load
        params, config = read(path)
        role = None if _ROLE.value is None else records.ROLES.index(_ROLE.value)
        output = pathlib.Path(_OUTPUT.value)
        export.write(output, params, config, like=_LIKE.value or None, role=role)
        print(f"{output}: {export.describe(config)['architectures'][0]}")
        if config.role_head == "lowrank":
            for number, name in enumerate(records.ROLES):
                folder = output / f"adapter_{name}"
                export.write_adapter(folder, params, config, number, str(output))
                print(f"{folder}: LoRA adapter of rank {config.role_rank} on lm_head")


if __name__ == "__main__":
    sys.exit(app.run(main))
