"""Measure speed and memory: `python -m launch.bench NAME [--only=TEXT] [--json]`.

Each name is a file of `launch/benches` with `measure(only)`, which yields dicts: `name`, `value`,
`unit`, and what it is held against (`ratio`, `against`, `target`). Machines are noisy: what is
compared is interleaved within one run, and medians and ratios are given. No test depends on a time.
"""

from __future__ import annotations

import json
import pkgutil
import sys

from absl import app, flags

from launch import benches, entry

_JSON = flags.DEFINE_bool("json", False, "Print one JSON object per measurement and no table.")
_ONLY = flags.DEFINE_string("only", "", "Run the measurements whose name contains this text.")


def names() -> list[str]:
    """Give the benches that exist."""
    return sorted(module.name for module in pkgutil.iter_modules(benches.__path__))


def main(argv: list[str]) -> None:
    """Run one bench."""
    known = names()
    if len(argv) != 2 or argv[1] not in known:
        raise app.UsageError(f"Name one bench of {known}; got {argv[1:]}.")
    entry.set_up()
    with entry.one_paragraph():
        module = pkgutil.resolve_name(f"launch.benches.{argv[1]}")
        for measurement in module.measure(_ONLY.value):
            print(json.dumps(measurement) if _JSON.value else _line(measurement), flush=True)


def _line(measurement: dict) -> str:
    """Write a measurement for a person: name, value, and what it is held against."""
    rest = dict(measurement)
    name, value, unit = rest.pop("name"), rest.pop("value"), rest.pop("unit")
    shown = f"{value:,.4g}" if isinstance(value, float) else str(value)
    held = "  ".join(f"{key}={item}" for key, item in rest.items())
    return f"{name:<40} {shown:>12} {unit:<12} {held}"


if __name__ == "__main__":
    sys.exit(app.run(main))
