"""Make a pool of the environments of a public library: reasoning-gym, GEM or RLVE.

    pip install reasoning-gym
    python -m launch.wrap_library --library=reasoning_gym --output=POOL [--levels=0,2] [--count=N]

Each environment becomes a file that imports the library, in the contract; reasoning-gym's level -1
is its default configuration, 0 and up those of its curriculum. Every file is loaded and reset in
the sandbox; one that fails is left out and named. Exit code 0 if all were wrapped, 1 if some were
left out, 2 if no pool was made. To judge the files, and to train on them:

    python -m launch.check_env POOL --packages=reasoning-gym --wall_seconds=60
    python -m launch.train --config=FILE --workdir=DIR --config.mode=fixed_pool \\
        --config.setting=games --config.pool_folder=POOL \\
        --config.sandbox.packages="('reasoning-gym',)"
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Sequence

from absl import app, flags

from sandbox import crew as crew_lib
from sandbox import records as sandbox_records
from spade_jax import domains, lent, pool_files
from spade_jax.suites import libraries

_SEED = 1  # of the instance that is tried
_LIMITS = sandbox_records.Limits(wall_seconds=20.0, cpu_seconds=20.0)
_TOGETHER = 8  # processes at once


def failures(made: Sequence[pool_files.Entry], crew: crew_lib.Crew) -> dict[str, str]:
    """Load and reset every environment; returns family -> what went wrong."""
    found = {}
    for start in range(0, len(made), _TOGETHER):
        part = made[start : start + _TOGETHER]
        sessions = [_open(entry, crew) for entry in part]
        futures = [
            session.submit(_requests(entry)) for session, entry in zip(sessions, part, strict=True)
        ]
        for entry, session, future in zip(part, sessions, futures, strict=True):
            faults = [o for o in future.result() if o.status != "ok" or o.value.get("contract")]
            if faults:
                told = faults[0].detail or str(faults[0].value.get("contract"))
                found[entry.family] = f"{faults[0].status}: {told}".replace("\n", " ")[:300]
            session.close()
    return found


def _open(entry: pool_files.Entry, crew: crew_lib.Crew) -> crew_lib.Session:
    domain = domains.get(entry.setting)
    return crew.open(
        entry.source, modules=dict(domain.modules), prelude=domain.prelude, limits=_LIMITS
    )


def _requests(entry: pool_files.Entry) -> list[dict]:
    load = {"op": "load", "seed": _SEED, "max_turns": None, "pacing": "respect"}
    return [{"play": 0, **request} for request in (load, {"op": "reset", "seed": _SEED})]


def main(argv: list[str]) -> int:
    """Wrap one library."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments {argv[1:]}.")
    name = flags.FLAGS.library
    packages = libraries.LIBRARIES[name].packages
    levels = [int(level) for level in flags.FLAGS.levels]
    try:
        with crew_lib.Crew(lent.lending(crew_lib.CrewConfig(), packages)) as crew:
            made = libraries.entries(name, crew, flags.FLAGS.turns, levels)
            made = made[: flags.FLAGS.count or len(made)]
            left_out = failures(made, crew)
        kept = [entry for entry in made if entry.family not in left_out]
        versions = {p: importlib.metadata.version(p) for p in packages}
        provenance = {
            "kind": "library",
            "library": name,
            "packages": versions,
            "left_out": left_out,
        }
        pool_files.write(flags.FLAGS.output, kept, provenance)
    except (OSError, ValueError, sandbox_records.SandboxUnavailable) as error:
        print(f"wrap_library: {error}", file=sys.stderr)
        return 2
    for family, reason in left_out.items():
        print(f"left out  {family}: {reason}", file=sys.stderr)
    allowed = ",".join(libraries.LIBRARIES[name].imports)
    print(
        f"{flags.FLAGS.output}: {len(kept)} environments of {name}, {len(left_out)} left out. "
        f"They import {', '.join(packages)}.\n"
        f"judge: python -m launch.check_env {flags.FLAGS.output} --packages={','.join(packages)}"
        + (f" --imports={allowed}" if allowed else "")
        + " --wall_seconds=60\n"
        f"train: --config.mode=fixed_pool --config.setting=games "
        f'--config.pool_folder={flags.FLAGS.output} --config.sandbox.packages="{packages}"'
    )
    return 1 if left_out else 0


def define_flags() -> None:
    """Declare the flags of this door."""
    names = sorted(libraries.LIBRARIES)
    flags.DEFINE_enum("library", None, names, "Library to wrap.", required=True)
    flags.DEFINE_string("output", None, "Directory to make.", required=True)
    flags.DEFINE_list("levels", [], "Levels of difficulty; the library's first by default.")
    flags.DEFINE_integer("turns", 2, "Tries of one question.", lower_bound=1)
    flags.DEFINE_integer("count", 0, "Environments at most; 0: all.", lower_bound=0)


if __name__ == "__main__":
    define_flags()
    app.run(main)
