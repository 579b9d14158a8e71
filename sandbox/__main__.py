"""The operator's door: `python -m sandbox doctor | install | run FILE | call FILE`.

Exit codes: 0 all is well (the program's status is ok), 1 it is not, 2 there is no sandbox, or
what was asked for makes no sense.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys

from sandbox import crew, doctor, frames, install, records


class Refused(Exception):
    """What an operator asked for makes no sense; the message says why."""


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says; returns the exit code, 2 where nothing could run."""
    options = parser().parse_args(arguments)
    try:
        return options.action(options)
    except (records.SandboxUnavailable, Refused) as error:
        print(f"sandbox: {error}", file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    defaults = records.Limits()
    top = argparse.ArgumentParser(prog="python -m sandbox", description=__doc__)
    doors = top.add_subparsers(required=True, metavar="COMMAND")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="one JSON object on stdout")
    shared.add_argument(
        "--tier", choices=crew.TIERS, default="gvisor", help="the last two are unsafe"
    )
    shared.add_argument("--platform", choices=crew.PLATFORMS, default="auto")
    limits = argparse.ArgumentParser(add_help=False)
    limits.add_argument("--wall-seconds", type=float, default=defaults.wall_seconds)
    limits.add_argument("--cpu-seconds", type=float, default=defaults.cpu_seconds)
    limits.add_argument("--memory-bytes", type=int, default=defaults.memory_bytes)
    limits.add_argument("--output-bytes", type=int, default=defaults.output_bytes)
    limits.add_argument("--processes", type=int, default=defaults.processes)
    limits.add_argument("--deadline-seconds", type=float, default=defaults.deadline_seconds)
    door = doors.add_parser("doctor", parents=[shared], help="what works here, and what to do")
    door.set_defaults(action=diagnose)
    door = doors.add_parser("install", help="install runsc from Debian's backports where missing")
    door.set_defaults(action=lambda options: print(install.ensure_runsc()) or 0)
    door = doors.add_parser("run", parents=[shared, limits], help="execute a program")
    door.add_argument("file", type=pathlib.Path)
    door.add_argument("--stdin", default="", help="text for the program's stdin")
    door.set_defaults(action=run)
    door = doors.add_parser("call", parents=[shared, limits], help="call a function of a program")
    door.add_argument("file", type=pathlib.Path)
    door.add_argument("--function", default="solve")
    door.add_argument("--inputs", required=True, help="JSON list, one call each")
    door.set_defaults(action=call)
    return top


def one_box(options: argparse.Namespace) -> crew.Crew:
    """Start a crew of one box."""
    return crew.Crew(crew.CrewConfig(tier=options.tier, platform=options.platform, boxes=1))


def limits_of(options: argparse.Namespace) -> records.Limits:
    """Read the limits; `Refused` where they cannot hold."""
    names = [field.name for field in dataclasses.fields(records.Limits)]
    try:
        return records.Limits(**{name: getattr(options, name) for name in names})
    except ValueError as error:
        raise Refused(str(error)) from None


def source_of(options: argparse.Namespace) -> str:
    """Read the program; `Refused` where its file is no text."""
    try:
        return options.file.read_text(encoding="utf-8")
    except OSError as error:
        raise Refused(f"the program cannot be read: {error}") from None
    except UnicodeDecodeError as error:
        raise Refused(f"{options.file} is not text in UTF-8: {error}") from None


def inputs_of(options: argparse.Namespace) -> list:
    """Read --inputs; `Refused` where it is no JSON list."""
    try:
        inputs = frames.strict_json(options.inputs.encode("utf-8", "replace"))
    except frames.ProtocolError as error:
        raise Refused(f"--inputs: {error}") from None
    if not isinstance(inputs, list):
        raise Refused("--inputs must be a JSON list; each item is one call.")
    return inputs


def diagnose(options: argparse.Namespace) -> int:
    """Print what works here; exit code 1 where programs cannot run."""
    found = doctor.examine(options.tier, options.platform)
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:>20}  {value}")
    return 0 if found["works"] else 1


def run(options: argparse.Namespace) -> int:
    """Execute a program and print its outcome."""
    source, limits = source_of(options), limits_of(options)
    with one_box(options) as boxes:
        outcome = boxes.run(source, options.stdin, limits)
    return show(outcome, options, {"exit_code": outcome.value})


def call(options: argparse.Namespace) -> int:
    """Call a function of a program and print its answers."""
    source, inputs, limits = source_of(options), inputs_of(options), limits_of(options)
    with one_box(options) as boxes:
        outcome = boxes.call(source, options.function, inputs, limits)
    return show(outcome, options, {"answers": outcome.value})


def show(outcome: records.Outcome, options: argparse.Namespace, extra: dict) -> int:
    """Print an outcome; exit code 0 where the program ended well."""
    told = dataclasses.asdict(outcome)
    del told["value"]
    told |= extra
    if options.json:
        print(json.dumps(told))
    else:
        sys.stdout.write(outcome.stdout)
        sys.stderr.write(outcome.stderr)
        for name in ("status", "detail", *extra, "cpu_seconds", "wall_seconds", "tier"):
            print(f"{name}: {told[name]}", file=sys.stderr)
    return 0 if outcome.status == records.OK else 1


if __name__ == "__main__":
    sys.exit(main())
