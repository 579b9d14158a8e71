"""Compile for a TPU slice that is not there: `python -m launch.compile --config=FILE`.

`--topology=v5e:16x16` compiles the real update for that slice, and a chunk of decoding for one of
its hosts, and prints what one chip holds, executes and exchanges, and the time that this takes at
published rates. Needs the package libtpu (`pip install -e '.[tpu]'`) and no TPU. Any value is
overridden as everywhere: `--config.batch.row_tokens=4096 --config.mesh.tensor=4`; the mesh axis
`fsdp` takes the chips that the others leave.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time

from absl import app, flags
from ml_collections import config_flags

from launch import entry, overrides

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Configuration file; --config.section.key=value overrides one value."
)
_TOPOLOGY = flags.DEFINE_string("topology", "v5e:16x16", "Chip, and chips along each axis.")
_ROWS = flags.DEFINE_integer("rows", 0, "Rows of a batch; 0 takes one for every part of it.")
_SEQUENCES = flags.DEFINE_integer(
    "sequences", 0, "Sequences that a host decodes at a time; 0 takes its share of the plays."
)
_PROGRAM = flags.DEFINE_enum(
    "program", "both", ["both", "update", "decode"], "The update, a chunk of decoding, or both."
)
_LARGEST = flags.DEFINE_integer("largest", 0, "Also list this many of the largest instructions.")
_JSON = flags.DEFINE_bool("json", False, "Print one JSON object per program and no text.")
_SAVE = flags.DEFINE_string("save", "", "Also write the compiled HLO text to this file.")

# What libtpu asks a metadata server for where it finds no TPU; any slice may be described then.
NO_TPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # no chip is touched, so processes need not exclude others
    "TPU_LOG_DIR": "disabled",
    "TPU_MIN_LOG_LEVEL": "3",
}


def main(argv: list[str]) -> None:
    """Compile and report."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments {argv[1:]}.")
    set_up()
    with entry.one_paragraph():
        from launch import aot, chunk

        config = entry.settings_of(_CONFIG.value)
        where, mesh, config = aot.describe(_TOPOLOGY.value, config)
        if _PROGRAM.value in ("both", "update"):
            started = time.time()
            report, text, works = aot.update(config, where, mesh, _ROWS.value)
            if _SAVE.value:
                with open(_SAVE.value, "w") as file:
                    file.write(text)
            _tell(report, [*aot.lines(report), *aot.largest(works, _LARGEST.value)], started)
        if _PROGRAM.value in ("both", "decode"):
            started = time.time()
            report = chunk.measure(config, where, mesh, _SEQUENCES.value)
            _tell(report, chunk.lines(report), started)


def _tell(report, lines, started: float) -> None:
    if _JSON.value:
        print(json.dumps(dataclasses.asdict(report)))
        return
    print("\n".join(lines))
    print(f"compiled in {time.time() - started:.0f} s")


def set_up() -> None:
    """Keep JAX on the CPU and libtpu from looking for a TPU.

    Raises:
      SystemExit: libtpu is not installed.
    """
    for name, value in NO_TPU.items():
        os.environ.setdefault(name, value)
    os.environ["JAX_PLATFORMS"] = "cpu"
    entry.set_up()
    import jax

    jax.config.update("jax_enable_compilation_cache", False)  # programs for a slice are large
    try:
        import libtpu  # noqa: F401
    except ImportError:
        print(
            "\nThe package libtpu is not installed: it holds the TPU compiler. Install it with "
            "pip install -e '.[tpu]', or alone and beside JAX: pip install libtpu.",
            file=sys.stderr,
        )
        sys.exit(1)


if __name__ == "__main__":
    flags.mark_flags_as_required(["config"])
    sys.exit(app.run(main, flags_parser=overrides.parse_flags))
