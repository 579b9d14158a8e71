"""Lend this host's boxes to a fleet: `python -m launch.sandbox_fleet --head | --address=HOST:PORT`.

The first host starts the cluster with `--head`, the others join it with `--address`; hosts may join
and leave during a run. Trainers use the fleet with `--config.sandbox.fleet=HOST:PORT`. SIGTERM or
Ctrl-C lets the sessions here end and leaves; kill -9 leaves no box behind. `--status` tells how all
hosts are doing.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import signal
import sys
import threading
import time

from absl import app, flags

from sandbox import crew, records
from sandbox.fleet import held, meter
from spade_jax import lent

_HEAD = flags.DEFINE_bool("head", False, "Start the cluster; its end is the end of the fleet.")
_ADDRESS = flags.DEFINE_string("address", "", "HOST:PORT of the head, to join its cluster.")
_PORT = flags.DEFINE_integer("port", 6379, "Port of the head.", 1, 65535)
_IP = flags.DEFINE_string("ip", "", "Address of this host in the private network; empty: found.")
_CREW = flags.DEFINE_bool("crew", True, "Lend boxes. Without, a head only keeps the cluster.")
_BOXES = flags.DEFINE_integer("boxes", 0, "Boxes of this host; 0: one per processor.", 0)
_TIER = flags.DEFINE_enum("tier", "gvisor", crew.TIERS, "bubblewrap and subprocess are unsafe.")
_PLATFORM = flags.DEFINE_enum("platform", "auto", crew.PLATFORMS, "gVisor's platform.")
_PACKAGES = flags.DEFINE_list(
    "packages", [], "Installed distributions that programs may import, with what they require."
)
_LEASE = flags.DEFINE_float("lease_seconds", 10.0, "Sessions of a trainer silent so long end.", 3.0)
_DRAIN = flags.DEFINE_float("drain_seconds", 60.0, "What leaves waits so long for sessions.", 0.0)
_EVERY = flags.DEFINE_float("every", 30.0, "Seconds between two lines of metrics.", 1.0)
_METRICS = flags.DEFINE_string("metrics", "", "File to which each line of metrics goes as JSON.")
_STATUS = flags.DEFINE_bool("status", False, "Tell how the hosts of --address are doing, and end.")
_JSON = flags.DEFINE_bool("json", False, "With --status: one JSON object.")
_UNAUTHENTICATED = flags.DEFINE_bool(
    "unauthenticated", False, "Run without a token: whoever reaches Ray's ports can run any code."
)


def main(argv: list[str]) -> None:
    """Serve until told to leave, or tell the status."""
    if len(argv) > 1 or _HEAD.value == bool(_ADDRESS.value) or (_STATUS.value and _HEAD.value):
        raise app.UsageError("Give one of --head and --address=HOST:PORT; --status needs the last.")
    _check_token()
    try:
        from sandbox.fleet import cluster
    except ModuleNotFoundError as error:
        sys.exit(f"The fleet needs Ray ({error}): pip install '.[fleet]'.")
    try:
        _tell_status(cluster) if _STATUS.value else _serve(cluster)
    except (records.SandboxUnavailable, OSError) as error:
        sys.exit(f"{type(error).__name__}: {error}")


def _check_token() -> None:
    """Refuse a cluster that takes code from anyone, unless that was asked for."""
    mode = os.environ.get("RAY_AUTH_MODE", "")
    if _UNAUTHENTICATED.value and mode == "token":
        raise app.UsageError(
            "--unauthenticated and RAY_AUTH_MODE=token disagree; give one of them."
        )
    if _UNAUTHENTICATED.value:
        os.environ["RAY_AUTH_MODE"] = "disabled"
    elif mode != "token":
        raise app.UsageError(
            "Ray would run any code from whoever reaches its ports. Make a token with `ray "
            "get-auth-token --generate`, copy ~/.ray/auth_token to every host and trainer, and "
            "set RAY_AUTH_MODE=token there; or pass --unauthenticated in a network of your own."
        )


def _serve(cluster) -> None:
    leaving = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: leaving.set())
    node = cluster.Node(
        address=_ADDRESS.value,
        name=cluster.own_name(),
        port=_PORT.value,
        ip=_IP.value,
        carries_boxes=_CREW.value,
    )
    try:
        placed = None
        if _CREW.value:
            placed = cluster.place_crew(node, _crew_config(), _LEASE.value)
        print(f"host {node.name} is in the fleet at {node.address}", flush=True)
        while not leaving.wait(_EVERY.value):
            if not node.alive:
                raise OSError(
                    f"the Ray node of this host ended; was the head at {node.address} stopped?"
                )
            _log(cluster.Cluster(node).reports() if _HEAD.value else _own(placed))
        if placed is not None:
            _drain(placed)
    finally:
        node.close()
    print(f"host {node.name} has left", flush=True)


def _crew_config() -> crew.CrewConfig:
    config = crew.CrewConfig(tier=_TIER.value, boxes=_BOXES.value, platform=_PLATFORM.value)
    return lent.lending(config, _PACKAGES.value)


def _own(placed) -> list:
    """The report of this host alone; none while its crew is down."""
    if placed is None:
        return []
    try:
        return [placed.ask("report").result(timeout=30)]
    except held.HostLost as error:
        print(f"the crew of this host does not answer: {error}", file=sys.stderr)
        return []


def _drain(placed) -> None:
    """Take nothing new, wait for what is here, close the boxes."""
    deadline = time.monotonic() + _DRAIN.value
    try:
        placed.ask("leave").result(timeout=30)
        vacant = 0  # answers in a row: an order may be under way to an empty host
        while vacant < 2 and time.monotonic() < deadline:
            vacant = vacant + 1 if placed.ask("vacant").result(timeout=30) else 0
            time.sleep(0.5)
        placed.ask("close").result(timeout=60)
    except held.HostLost as error:
        print(f"the crew of this host is gone already: {error}", file=sys.stderr)


def _log(reports: list) -> None:
    """Write a line for each host, and what JSON readers get of it."""
    for report in reports:
        print(_line(report), flush=True)
    if _METRICS.value:
        with pathlib.Path(_METRICS.value).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": time.time(), **_as_json(reports)}) + "\n")


def _tell_status(cluster) -> None:
    node = cluster.Node(address=_ADDRESS.value, name=cluster.own_name(), carries_boxes=False)
    try:
        reports = cluster.Cluster(node).reports()
    finally:
        node.close()
    if _JSON.value:
        print(json.dumps(_as_json(reports)))
        return
    for report in [*reports, meter.total(reports)]:
        print(_line(report))


def _as_json(reports: list) -> dict:
    return {
        "fleet": dataclasses.asdict(meter.total(reports)),
        "hosts": [dataclasses.asdict(report) for report in reports],
    }


def _line(report) -> str:
    """One host for a person."""
    outcomes = " ".join(f"{status} {count}" for status, count in sorted(report.outcomes.items()))
    return (
        f"{report.host:<28} {report.tier:<15} {report.boxes:>3} boxes  "
        f"{report.memory_bytes / 2**20:6.0f} MiB  {report.sessions:>4} sessions  "
        f"{report.asked:>4} asked  {report.orders_a_second:7.1f}/s  "
        f"p50 {report.p50_seconds:.3f} p99 {report.p99_seconds:.3f} s  {outcomes}"
        f"{'  leaving' if report.leaving else ''}"
    )


if __name__ == "__main__":
    sys.exit(app.run(main))
