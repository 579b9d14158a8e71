"""Leave nothing of a Ray node behind: `warden.py PARENT_PID FOLDER`, standard library only.

It waits until its stdin closes or its parent is gone, kills the processes whose command line names
the folder, and removes it until it stays away: a node that is killed while it starts still writes.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time

PATIENCE_SECONDS = 9.0
LOOK_SECONDS = 0.3
LOOKS = 4  # in a row without the folder


def main() -> None:
    """Wait until the parent is gone or closes standard input, and clear up behind it."""
    parent, folder = int(sys.argv[1]), sys.argv[2]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.getppid() == parent:
        ready, _, _ = select.select([0], [], [], 1.0)
        if ready and not os.read(0, 1):
            break
    clear(folder)


def clear(folder: str) -> None:
    """Kill what names the folder and remove it."""
    deadline, away = time.monotonic() + PATIENCE_SECONDS, 0
    while away < LOOKS and time.monotonic() < deadline:
        kill_all(folder)
        away = 0 if os.path.lexists(folder) else away + 1
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(LOOK_SECONDS)


def kill_all(folder: str) -> None:
    """Kill the processes whose command line names the folder, this one aside."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in (os.getpid(), os.getppid()):
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as command:
                if folder.encode() in command.read():
                    os.kill(int(entry), signal.SIGKILL)
        except OSError:
            continue


if __name__ == "__main__":
    main()
