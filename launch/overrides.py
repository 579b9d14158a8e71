"""Parse a door's flags, so that a mistyped override is told in one paragraph.

A door runs `app.run(main, flags_parser=overrides.parse_flags)`.
"""

from __future__ import annotations

import re
import sys

from absl import flags


def parse_flags(arguments: list[str]) -> list[str]:
    """Parse like absl; end the process with exit code 1, and one paragraph, at a wrong flag.

    Args:
      arguments: the command line, program name first.
    Returns:
      What is left of it, program name first.
    """
    try:
        rest = flags.FLAGS(arguments)
        if "config" in flags.FLAGS and flags.FLAGS["config"].value is not None:
            flags.FLAGS["config"].value.keys()  # a file not found is raised only here
        return rest
    except flags.Error as error:
        print(f"\n{_told(error)}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        print(
            f"\nThe experiment file cannot be read: {error}. Give --config=FILE.", file=sys.stderr
        )
        sys.exit(1)
    except (AttributeError, KeyError):
        message = explain(arguments)
        if message is None:
            raise
        print(f"\n{message}", file=sys.stderr)
        sys.exit(1)


def explain(arguments: list[str]) -> str | None:
    """Say which `--config.a.b=value` names no knob; None if all do."""
    from spade_jax import config, settings  # late: it loads JAX, and only an error needs it

    known = set(config.knobs(settings.RunConfig))
    for argument in arguments:
        name = argument.lstrip("-").split("=")[0].removeprefix("no")
        if name.startswith("config.") and name.removeprefix("config.") not in known:
            return config.explain_unknown(settings.RunConfig, name.removeprefix("config."))
    return None


def _told(error: flags.Error) -> str:
    missing = re.search(r"Flag --(\w+) must have a value other than None", str(error))
    if missing is None:
        return f"{error} --help lists the flags."
    name = missing.group(1)
    return f"--{name} is missing: {flags.FLAGS[name].help} Give --{name}=VALUE; --help lists all."
