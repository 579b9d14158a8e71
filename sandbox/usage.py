"""Processor time that a box really got from its host, and memory that it holds there.

gVisor charges a program for all the time in which it could run, whether a processor was free or
not. The host knows better, but only for a box as a whole. `share` gives a program its part of that.
"""

from __future__ import annotations

import os

TICKS = os.sysconf("SC_CLK_TCK")


def tree_seconds(root: int) -> float:
    """Sum the CPU seconds of a process and its descendants, with those that have ended."""
    return sum(sum(map(int, fields[11:15])) for _, fields in tree(root)) / TICKS


def tree_bytes(root: int) -> int:
    """Sum the memory of a process and its descendants, shared pages counted once."""
    total = 0
    for process, _ in tree(root):
        try:
            with open(f"/proc/{process}/smaps_rollup") as rollup:
                lines = [line.split() for line in rollup if line.startswith("Pss:")]
        except OSError:
            continue
        total += sum(int(line[1]) << 10 for line in lines)
    return total


def tree(root: int) -> list[tuple[int, list[bytes]]]:
    """A process and its descendants, each with the fields of its `stat` after the name."""
    children: dict[int, list[int]] = {}
    found: dict[int, list[bytes]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:
                    fields = stat.read().rpartition(b")")[2].split()
            except OSError:
                continue
            found[int(name)] = fields
            children.setdefault(int(fields[1]), []).append(int(name))
    members, waiting = [], [root]
    while waiting:
        process = waiting.pop()
        if process in found:
            members.append((process, found[process]))
        waiting += children.get(process, [])
    return members


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
