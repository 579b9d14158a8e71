"""Start a command that dies with its parent: `launcher.py PARENT_PID [FILE...] -- COMMAND...`.

The parent is named because it may be gone before the signal is armed. The process writes itself
into the files, of cgroups, first; one that cannot is not started, since it would have no budget.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Enter the cgroups named, and become the command behind `--`; end with the parent."""
    parent = int(sys.argv[1])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)
    end = sys.argv.index("--")
    for file in sys.argv[2:end]:
        with open(file, "w") as processes:
            processes.write(str(os.getpid()))
    command = sys.argv[end + 1 :]
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
