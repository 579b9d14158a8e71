"""The canary: a program of ours that tells whether a box is clean, and how fast it is.

It looks for files, processes and listeners that a program before it could have left, and times a
fixed loop. The time scales the limits, so that a slow machine does not turn right programs into
timeouts.
"""

from __future__ import annotations

import dataclasses
import json
import time

from sandbox import records, work

REFERENCE_SECONDS = 0.002  # the loop on the machine of MEASUREMENTS.md, nothing else running
WALL_SECONDS = 30.0
SOURCE = """
import errno, json, os, socket, time
def look():
    left = [p for d in ("/tmp", "/dev/shm") for p in os.listdir(d)]
    left += [p for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]
    with open("/proc/net/tcp") as table:
        ports = [row.split()[1] for row in table if " 0A " in row]
    return left + ["listener " + port for port in ports if not free(int(port[-4:], 16))]
def free(port):
    # gVisor lists those of all programs; who runs beside this one keeps no port from it
    with socket.socket() as own:
        try: own.bind(("127.0.0.1", port))
        except OSError as error: return error.errno != errno.EADDRINUSE
    return True
def loop():
    started, total = time.perf_counter(), 0
    for i in range(40000): total += i * i % 7
    return time.perf_counter() - started
left = look() if ISOLATED else []
print(json.dumps({"left": left, "seconds": sorted(loop() for _ in range(5))[2]}))
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """What a canary found."""

    fault: str  # why the box is not to be trusted any more; empty: it is clean
    seconds: float | None  # of the loop; None where it was not measured


def program(tier: str) -> work.Program:
    """Make the canary for a box of a tier."""
    isolated = tier != "subprocess"
    limits = records.Limits(wall_seconds=WALL_SECONDS, cpu_seconds=WALL_SECONDS)
    order = {"source": SOURCE.replace("ISOLATED", repr(isolated))}
    return work.new_job("run", "0", limits, order, deadline=time.monotonic() + limits.patience)


def read(outcome: records.Outcome) -> Finding:
    """Judge what a canary said; a sandbox that failed is no finding about the box."""
    if outcome.status == records.INFRA:
        return Finding(fault="", seconds=None)
    try:
        told = json.loads(outcome.stdout)
        left, seconds = told["left"], float(told["seconds"])
    except (ValueError, KeyError, TypeError):
        return Finding(fault=f"the canary ended as {outcome.status} {outcome.detail}", seconds=None)
    return Finding(fault=f"the canary found {left}" if left else "", seconds=seconds)


def scale(seconds: float, highest: float) -> float:
    """How much longer limits must be on a machine whose loop takes `seconds`; 1 to `highest`."""
    return min(highest, max(1.0, seconds / REFERENCE_SECONDS))
