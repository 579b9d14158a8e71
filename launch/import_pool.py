"""Make a pool of what the public implementation of SPADE left behind.

    python -m launch.import_pool --source=PATH --output=POOL [--files=DIR] [--skill=NAME]

PATH is a static pool, a dump of environments, a folder of `game_*.py`, JSON lines of the tool pool,
or a memory file (env_memory.json). Damaged entries are left out and named; exit code 0 if all were
taken, 1 if some were refused, 2 if no pool was made. No program is run: `launch.check_env POOL`
judges them in the sandbox.
"""

from __future__ import annotations

import pathlib
import sys

from absl import app, flags

from spade_jax import pool_files, public_pool

_SOURCE = flags.DEFINE_string("source", None, "What to read.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "Directory to make.", required=True)
_FILES = flags.DEFINE_string("files", None, "Folder with the whole programs of a memory file.")
_SKILL = flags.DEFINE_string("skill", "", "Skill of programs whose own is not known here.")


def main(argv: list[str]) -> int:
    """Import one pool."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments {argv[1:]}.")
    source = pathlib.Path(_SOURCE.value)
    files = None if _FILES.value is None else pathlib.Path(_FILES.value)
    try:
        made, refused = public_pool.take(public_pool.read(source, files), _SKILL.value)
        for name, reason in refused.items():
            line = "".join(c for c in f"refused  {name}: {reason}" if c.isprintable())
            print(line, file=sys.stderr)
        provenance = {"kind": "import", "source": str(source.resolve()), "refused": refused}
        pool_files.write(_OUTPUT.value, made, provenance)
    except (OSError, ValueError) as error:
        print(f"import_pool: {error}", file=sys.stderr)
        return 2
    print(f"{_OUTPUT.value}: {len(made)} environments imported, {len(refused)} refused")
    return 1 if refused else 0


if __name__ == "__main__":
    app.run(main)
