"""How a box's process is waited for, ended, and what its end means."""

from __future__ import annotations

import select
import subprocess
from typing import IO


def readable(stream: IO[bytes], seconds: float) -> bool:
    """Wait until there is something to read, or the end of the stream."""
    return bool(select.select([stream], [], [], max(0.0, seconds))[0])


def how_it_ended(process: subprocess.Popen) -> str:
    """Say how a process ended whose output is closed."""
    try:
        return f"exit code {process.wait(timeout=5)}"
    except subprocess.TimeoutExpired:
        return "its output closed while it still runs"


def stop(process: subprocess.Popen) -> None:
    """Close a box's stdin, which ends it, and kill what does not go."""
    process.stdin.close()
    try:
        process.wait(timeout=2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
