"""What installed distributions bring along: the names under which programs import them.

In: names of distributions. Out: import names, theirs and of all that they require. Nothing is
imported; only what pip wrote is read.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import re
from collections.abc import Sequence

from sandbox import crew


def own(distributions: Sequence[str]) -> list[str]:
    """List the import names that distributions bring themselves.

    Raises:
      ValueError: one is not installed.
    """
    return _tops({_key(name) for name in distributions}, _owners(distributions))


def brought(distributions: Sequence[str]) -> list[str]:
    """List the import names of distributions and of all that they require, as far as installed.

    Raises:
      ValueError: one of those named is not installed.
    """
    return _tops(_required(distributions), _owners(distributions))


def lending(config: crew.CrewConfig, distributions: Sequence[str]) -> crew.CrewConfig:
    """Let the programs of a crew import distributions; its boxes load them beforehand.

    Raises:
      ValueError: one is not installed.
    """
    if not distributions:
        return config
    owners = _owners(distributions)
    together = tuple(dict.fromkeys((*config.packages, *_tops(_required(distributions), owners))))
    mine = _tops({_key(name) for name in distributions}, owners)
    warm = tuple(name for name in mine if name not in config.packages)
    return dataclasses.replace(config, packages=together, preload=warm)


def _required(distributions: Sequence[str]) -> set[str]:
    """Follow what distributions require; what is not installed is optional, or for elsewhere."""
    wanted, found = list(distributions), set()
    while wanted:
        name = _key(wanted.pop())
        if name in found:
            continue
        found.add(name)
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        wanted += [re.split(r"[^\w.-]", line)[0] for line in requires if "extra ==" not in line]
    return found


def _owners(named: Sequence[str]) -> dict[str, set[str]]:
    """Read import name -> distributions, which looks through all that is installed.

    Raises:
      ValueError: one of those named is not among them.
    """
    if not named:
        return {}
    provided = importlib.metadata.packages_distributions()
    owners = {top: set(map(_key, names)) for top, names in provided.items()}
    installed = set().union(*owners.values())
    missing = [name for name in named if _key(name) not in installed]
    if missing:
        raise ValueError(
            f"{', '.join(missing)} is not installed here. Run `pip install {' '.join(missing)}` "
            "in this environment, or do not name it."
        )
    return owners


def _tops(keys: set[str], owners: dict[str, set[str]]) -> list[str]:
    """List the import names that distributions own."""
    return sorted(top for top, names in owners.items() if keys & names)


def _key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
