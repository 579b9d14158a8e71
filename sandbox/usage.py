"""Processor time that a box really got from its host.

gVisor charges a program for all the time in which it could run, whether a processor was free or
not. The host knows better, but only for a box as a whole. `share` gives a program its part of that.
"""

from __future__ import annotations

import os

TICKS = os.sysconf("SC_CLK_TCK")


def tree_seconds(root: int) -> float:
    """Sum the CPU seconds of a process and its descendants, with those that have ended."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:
                    fields = stat.read().rpartition(b")")[2].split()
            except OSError:
                continue
            ticks[int(name)] = sum(map(int, fields[11:15]))
            children.setdefault(int(fields[1]), []).append(int(name))
    total, waiting = 0, [root]
    while waiting:
        process = waiting.pop()
        total += ticks.get(process, 0)
        waiting += children.get(process, [])
    return total / TICKS


def share(charged: float, box_charged: float, box_got: float) -> float:
    """Scale what a program was charged by what its box got of all that was charged in it.

    Args:
      charged: CPU seconds that the kernel of the box charged to the program.
      box_charged: the same for all programs of the box, in the same time.
      box_got: CPU seconds that the host gave to the box in that time, gVisor's own work included.
    Returns:
      CPU seconds of the program, at most `charged`.
    """
    return charged * min(1.0, box_got / max(charged, box_charged, 1e-9))
