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
    return _provided({_key(name) for name in distributions}, distributions)


def brought(distributions: Sequence[str]) -> list[str]:
    """List the import names of distributions and of all that they require, as far as installed.

    Raises:
      ValueError: one of those named is not installed.
    """
    wanted, found = list(distributions), set()
    while wanted:
        name = _key(wanted.pop())
        if name in found:
            continue
        found.add(name)
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # optional, or for another platform
        wanted += [re.split(r"[^\w.-]", line)[0] for line in requires if "extra ==" not in line]
    return _provided(found, distributions)


def lending(config: crew.CrewConfig, distributions: Sequence[str]) -> crew.CrewConfig:
    """Let the programs of a crew import distributions; its boxes load them beforehand.

    Raises:
      ValueError: one is not installed.
    """
    if not distributions:
        return config
    together = tuple(dict.fromkeys((*config.packages, *brought(distributions))))
    warm = tuple(name for name in own(distributions) if name not in config.packages)
    return dataclasses.replace(config, packages=together, preload=warm)


def _provided(keys: set[str], named: Sequence[str]) -> list[str]:
    if not named:
        return []
    provided = importlib.metadata.packages_distributions()
    owners = {_key(owner) for names in provided.values() for owner in names}
    missing = [name for name in named if _key(name) not in owners]
    if missing:
        raise ValueError(
            f"{', '.join(missing)} is not installed here. Run `pip install {' '.join(missing)}` "
            "in this environment, or do not name it."
        )
    return sorted(top for top, names in provided.items() if keys & set(map(_key, names)))


def _key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
