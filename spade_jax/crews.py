"""Start the boxes of this host, or reach a fleet, as a configuration says.

In: `settings.SandboxConfig` and what is lent to programs. Out: a crew, or what stands for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandbox import bundle
from sandbox import crew as sandbox_crew
from sandbox import records as sandbox_records
from spade_jax import lent, settings


def open_crew(config: settings.SandboxConfig, packages: Sequence[str]) -> sandbox_crew.Crew:
    """Start boxes on this host."""
    crew = sandbox_crew.CrewConfig(tier=config.tier, boxes=config.boxes, platform=config.platform)
    return sandbox_crew.Crew(lent.lending(crew, packages))


def open_fleet(config: settings.SandboxConfig, packages: Sequence[str]) -> Any:
    """Reach a fleet whose hosts lend the packages; Ray is imported only here.

    Raises:
      sandbox.records.SandboxUnavailable: Ray is missing, or no host that fits is there.
    """
    from sandbox.fleet import desk

    try:
        from sandbox.fleet import cluster
    except ModuleNotFoundError as error:
        raise sandbox_records.SandboxUnavailable(
            f"sandbox.fleet={config.fleet} needs Ray ({error}): pip install '.[fleet]', or leave "
            "sandbox.fleet empty, which starts boxes on this host."
        ) from None
    wanted = desk.FleetConfig(tier=config.tier, packages=folders(packages))
    return cluster.join(config.fleet, wanted)


def folders(packages: Sequence[str]) -> tuple[str, ...]:
    """List the import names of distributions that are folders: by these hosts are told apart."""
    homes = {name: bundle.package_home(name) for name in lent.own(packages)}
    return tuple(name for name, home in homes.items() if home is not None and home.is_dir())
