"""Sweep: `python -m launch.sweep --config=FILE --sweep=FILE --workdir=DIR [--list | --emit | ...]`.

The sweep file returns points, overrides of the configuration. Each is one run in DIR/POINT with the
ordinary command of `launch.train`. The same command again skips points that are done and continues
the others. Every point is checked against the configuration before the first one starts.
"""

from __future__ import annotations

import shlex
import signal
import sys

from absl import app, flags
from etils import epath
from ml_collections import config_flags

from launch import entry, overrides, points
from spade_jax import gather, sweep

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Configuration that all points share; --config.x.y=value holds for all."
)
_SWEEP = config_flags.DEFINE_config_file(
    "sweep", None, "Sweep file: get_config() returns points; FILE:ARG hands it an argument."
)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the sweep, one folder a point in it.")
_LIST = flags.DEFINE_bool("list", False, "Print the points and how far they are.")
_EMIT = flags.DEFINE_bool("emit", False, "Print the command of every point that is not done.")
_WRAP = flags.DEFINE_string(
    "wrap",
    "{command}",
    "With --emit: line to print a point, with {command}, {point} and {workdir} filled in.",
)
_COLLECT = flags.DEFINE_bool(
    "collect", False, "Gather final metrics into DIR/sweep.{csv,md}, plots."
)
_METRICS = flags.DEFINE_list("metrics", list(gather.SHOWN), "Metrics in sweep.md and the plots.")
_PARALLEL = flags.DEFINE_integer("parallel", 1, "Points that run at once.", lower_bound=1)
_PROGRAM = flags.DEFINE_string("program", "launch.train", "Module that runs a point.")


def main(argv: list[str]) -> None:
    """Do what the flags ask for."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments {argv[1:]}.")
    if _LIST.value + _EMIT.value + _COLLECT.value > 1:
        raise app.UsageError("Choose one of --list, --emit and --collect.")
    with entry.one_paragraph():
        try:
            todo = _points(sweep.check(_SWEEP.value))
            if not (_LIST.value or _EMIT.value or _COLLECT.value):
                sys.exit(_run(todo))
        except sweep.SweepError as error:
            _refuse(error)
        if _LIST.value:
            _list(todo)
        elif _EMIT.value:
            _emit(todo)
        else:
            _collect(todo)


def _points(named: dict[str, sweep.Point]) -> list[points.Point]:
    """Build the configuration of every point, so that a bad one stops all of them."""
    folder, common = epath.Path(_WORKDIR.value), flags.FLAGS["config"]
    given = [
        f"--config={common.config_filename}",
        *sweep.as_flags(tuple(common.override_values.items())),
    ]
    made = []
    for name, point in named.items():
        values = points.override(_CONFIG.value, point)
        built = entry.settings_of(values)
        made.append(
            points.Point(
                name=name,
                overrides=point,
                folder=folder / name,
                iterations=built.iterations,
                command=(
                    *(sys.executable, "-m", _PROGRAM.value, *given, *sweep.as_flags(point)),
                    f"--workdir={folder / name}",
                ),
            )
        )
    return made


def _list(todo: list[points.Point]) -> None:
    for point in todo:
        row = points.read(point)
        done = f"{row.iterations}/{point.iterations}"
        print(f"{point.name}  {row.state:<8} {done:>9}  {sweep.describe(point.overrides)}")


def _emit(todo: list[points.Point]) -> None:
    for point in todo:
        if points.read(point).state != points.DONE:
            line = shlex.join(("python", *point.command[1:]))
            print(
                _WRAP.value.replace("{command}", line)
                .replace("{point}", point.name)
                .replace("{workdir}", str(point.folder))
            )


def _collect(todo: list[points.Point]) -> None:
    rows = [points.read(point) for point in todo]
    files = gather.write(rows, epath.Path(_WORKDIR.value), _METRICS.value)
    print(gather.as_markdown(rows, _METRICS.value))
    done = sum(row.state == points.DONE for row in rows)
    print(f"{done} of {len(rows)} points done; written to {_WORKDIR.value}: {', '.join(files)}")


def _run(todo: list[points.Point]) -> int:
    """Run what is not done; gives the exit code."""
    crew = points.Runner(_PARALLEL.value, print)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: crew.stop(received))
    return crew.run(todo)


def _refuse(error: sweep.SweepError) -> None:
    print(f"\nSweepError: {error} Nothing has been started.", file=sys.stderr)
    sys.exit(1)


def _parse_flags(arguments: list[str]) -> list[str]:
    """Parse like every door; a sweep file may refuse its own axes while it is read."""
    try:
        return overrides.parse_flags(arguments)
    except sweep.SweepError as error:
        _refuse(error)


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "sweep", "workdir"])
    sys.exit(app.run(main, flags_parser=_parse_flags))
