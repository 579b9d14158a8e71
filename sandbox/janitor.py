"""Leave nothing behind: remove the run directories and boxes of crews whose process is dead.

As a module: `sweep` at the start of a crew. As a script, `janitor.py PARENT_PID FOLDER`: the warden
of one crew. It waits until its stdin closes or its parent is gone, kills the boxes of that run
directory and removes it, so that a killed trainer leaves no process and no file. It imports nothing
of the package.
"""

from __future__ import annotations

import json
import os
import pathlib
import select
import shutil
import signal
import sys
import time

PATIENCE_SECONDS = 8.0


def main() -> None:
    """Wait until the parent is gone or closes standard input, and clear up behind it."""
    parent, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.getppid() == parent:
        ready, _, _ = select.select([0], [], [], 1.0)
        if ready and not os.read(0, 1):
            break
    clear(folder)


def clear(folder: pathlib.Path) -> None:
    """Kill the boxes of a run directory; remove its cgroups and the directory."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while kill_boxes(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    while not remove_cgroups(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


def remove_cgroups(folder: pathlib.Path) -> bool:
    """Kill what is left in the cgroups of a run and remove them; False while some are busy."""
    try:
        parents = [pathlib.Path(line) for line in (folder / "cgroups").read_text().splitlines()]
    except OSError:
        return True
    gone = True
    for parent in parents:
        homes = [home for home in parent.glob("*") if home.is_dir()]
        for home in (*homes, parent):
            try:
                for pid in (home / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
                home.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                gone = False
    return gone


def sweep(state_folder: pathlib.Path) -> list[pathlib.Path]:
    """Clear the run directories whose owner is dead, and nothing else; give what was cleared."""
    swept = []
    for folder in sorted(state_folder.glob("run-*")):
        try:
            owner = json.loads((folder / "owner.json").read_text())
            dead = start_time(int(owner["pid"])) != owner["started"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # half made by a living crew, or not ours
        if dead and folder.stat().st_uid == os.geteuid():
            clear(folder)
            swept.append(folder)
    return swept


def kill_boxes(folder: pathlib.Path) -> int:
    """Kill the processes whose command line names this run directory; count them."""
    found = 0
    names = (f"--root={folder}/state", f"scratch={folder}/scratch", f"{folder}/root")
    needles = tuple(name.encode() for name in names)
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as command:
                if not set(needles) & set(command.read().split(b"\0")):
                    continue
            os.kill(int(entry), signal.SIGKILL)
            found += 1
        except OSError:
            continue
    return found


def write_owner(folder: pathlib.Path) -> None:
    """Write down which process a run directory belongs to."""
    pid = os.getpid()
    (folder / "owner.json").write_text(json.dumps({"pid": pid, "started": start_time(pid)}))


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[19])
    except OSError:
        return None


if __name__ == "__main__":
    main()
