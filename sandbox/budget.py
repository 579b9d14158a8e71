"""Cgroups for boxes: a memory and a process budget for a whole box, read back before it counts.

The limits of single programs are enforced inside a box. The budget is the backstop behind them: it
protects the host from a box whose own kernel grows. Where cgroups cannot be used, the reason is
told and nothing else changes.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import time

MOUNT = pathlib.Path("/sys/fs/cgroup")
LEAVE_SECONDS = 2.0
CREW = re.compile(r"run-(\d+)-[0-9a-f]{8}")  # the name of a run directory: pid of its owner
PROCESSES = 4096  # threads of gVisor included
LIST = "cgroups"  # file of a run directory that names its cgroups, for the janitor
FILES = {  # controller: (file of version 1, file of version 2)
    "memory": ("memory.limit_in_bytes", "memory.max"),
    "pids": ("pids.max", "pids.max"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
    """The cgroups of one crew; every box gets one below each."""

    parents: dict[str, pathlib.Path]  # controller -> cgroup of the crew
    limits: dict[str, int]  # controller -> limit of a box
    reasons: dict[str, str]  # controller -> why it is not enforced

    def join(self, name: str) -> list[str]:
        """Make the cgroups of a box; give the files into which its first process writes itself."""
        homes = {}
        for controller, parent in self.parents.items():
            home = parent / name
            homes[home] = str(home / "cgroup.procs")
            home.mkdir(exist_ok=True)
            (home / limit_file(parent, controller)).write_text(str(self.limits[controller]))
        return list(homes.values())

    def leave(self, name: str) -> None:
        """Remove the cgroups of a box whose processes are ending."""
        deadline = time.monotonic() + LEAVE_SECONDS
        for parent in self.parents.values():
            while True:
                try:
                    (parent / name).rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        break
                    time.sleep(0.02)

    def verify(self, pid: int) -> dict[str, str]:
        """Read back what the kernel enforces on a process, by controller."""
        told = {name: f"not enforced: {reason}" for name, reason in self.reasons.items()}
        for controller, parent in self.parents.items():
            told[controller] = f"not enforced: process {pid} is not in a cgroup of this crew"
            for home in parent.iterdir():
                if home.is_dir() and str(pid) in (home / "cgroup.procs").read_text().split():
                    found = (home / limit_file(parent, controller)).read_text().strip()
                    told[controller] = judge(found, self.limits[controller])
        return told


def judge(found: str, wanted: int) -> str:
    """Say what a limit that was read back means; the kernel rounds down to pages."""
    if found.isdigit() and 0 <= wanted - int(found) < 1 << 16:
        return f"enforced: {found}"
    return f"not enforced: {wanted} was asked for and {found} is set"


def make(folder: pathlib.Path, memory_bytes: int) -> Budget:
    """Make the cgroups of a crew, named like its run directory, where the kernel lets us."""
    limits = {"memory": memory_bytes, "pids": PROCESSES}
    parents, reasons = {}, {}
    for controller in FILES:
        try:
            parents[controller] = make_parent(controller, folder.name)
        except (OSError, LookupError) as error:
            reasons[controller] = str(error)
    unique = sorted({str(path) for path in parents.values()})
    (folder / LIST).write_text("".join(f"{path}\n" for path in unique))
    return Budget(parents=parents, limits=limits, reasons=reasons)


def make_parent(controller: str, name: str) -> pathlib.Path:
    """Make a cgroup below our own, with the controller handed down to what is below it.

    Raises:
      LookupError: no controller of this name is mounted.
      OSError: it may not be used.
    """
    version_1, own = find_own(controller)
    sweep(own)
    parent = own / name
    parent.mkdir(exist_ok=True)
    try:
        if not version_1:
            (parent / "cgroup.subtree_control").write_text(f"+{controller}")
        trial = parent / "trial"
        trial.mkdir()
        try:
            (trial / limit_file(parent, controller)).write_text("1048576")
        finally:
            trial.rmdir()
    except OSError:
        parent.rmdir()
        raise
    return parent


def sweep(own: pathlib.Path) -> None:
    """Remove empty cgroups of crews that are dead, with their wardens and run directories gone."""
    for parent in own.glob("run-*"):
        named = CREW.fullmatch(parent.name)
        if named is None or os.path.exists(f"/proc/{named[1]}"):
            continue
        for home in (*(path for path in parent.glob("box*") if path.is_dir()), parent):
            try:
                home.rmdir()  # the kernel refuses where a process is left
            except OSError:
                continue


def find_own(controller: str) -> tuple[bool, pathlib.Path]:
    """Find the cgroup of this process for a controller; True for version 1."""
    version_2 = None
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return True, MOUNT / controller / path.lstrip("/")
        if not names:
            version_2 = path
    for mount in (MOUNT, MOUNT / "unified"):
        known = mount / "cgroup.controllers"
        if version_2 is not None and known.is_file() and controller in known.read_text().split():
            return False, mount / version_2.lstrip("/")
    raise LookupError(f"no cgroup controller {controller!r} is mounted at {MOUNT}")


def limit_file(cgroup: pathlib.Path, controller: str) -> str:
    """Name the file of a controller's limit, by the version of the cgroup."""
    return FILES[controller][(cgroup / "cgroup.controllers").exists()]


def share_of_memory(boxes: int) -> int:
    """Bytes for one of so many boxes: four fifths of the machine, divided."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return total * 4 // 5 // boxes
