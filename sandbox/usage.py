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
    """A process and its descendants, each with the fields of its `stat` after the name.

    Where the kernel lists children, only the tree is read: a look at every process of the machine
    costs ten milliseconds, a third of what a program takes.
    """
    listed = os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    everybody = None if listed else all_children()
    members, waiting = [], [root]
    while waiting:
        process = waiting.pop()
        try:
            fields = stat_fields(process)
            below = children(process) if everybody is None else everybody.get(process, [])
        except OSError:
            continue  # it has just ended
        members.append((process, fields))
        waiting += below
    return members


def stat_fields(process: int) -> list[bytes]:
    """Read the fields of /proc/PID/stat behind the name."""
    with open(f"/proc/{process}/stat", "rb") as stat:
        return stat.read().rpartition(b")")[2].split()


def children(process: int) -> list[int]:
    """List the child processes of a process."""
    found: list[int] = []
    for thread in os.listdir(f"/proc/{process}/task"):
        try:
            with open(f"/proc/{process}/task/{thread}/children", "rb") as listing:
                found += map(int, listing.read().split())
        except OSError:
            continue  # a thread that has just ended
    return found


def all_children() -> dict[int, list[int]]:
    """The children of every process of the machine."""
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parent = int(stat_fields(int(name))[1])
            except OSError:
                continue
            found.setdefault(parent, []).append(int(name))
    return found


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
