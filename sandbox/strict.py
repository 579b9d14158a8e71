"""The checkpoint from which the tier `gvisor_strict` restores a box for every program.

One box is started, and once its template is warm its whole state is written to a folder. Restoring
that takes less time than starting. It needs root; elsewhere boxes of this tier are started cold.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import time

from sandbox import frames, processes

READY_SECONDS = 60.0


def make_image(
    process: subprocess.Popen, checkpoint: list[str], image: pathlib.Path
) -> pathlib.Path:
    """Wait until a box is ready, write its state to `image` and end it.

    Args:
      process: the box, its dispatcher at stdin and stdout.
      checkpoint: command that writes the state of this box.
    Raises:
      RuntimeError: the box does not start, or its state cannot be written.
    """
    try:
        wait_ready(process)
        image.mkdir()
        done = subprocess.run(checkpoint, capture_output=True, text=True, timeout=READY_SECONDS)
        if done.returncode != 0:
            raise RuntimeError(f"runsc checkpoint failed: {done.stderr.strip()[-400:]}")
        return image
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"runsc checkpoint took more than {READY_SECONDS} s") from None
    finally:
        processes.stop(process)


def wait_ready(process: subprocess.Popen) -> None:
    """Wait for a box's first report; a RuntimeError where it ends, or says anything else."""
    decoder, deadline = frames.Decoder(), time.monotonic() + READY_SECONDS
    while True:
        if not processes.readable(process.stdout, deadline - time.monotonic()):
            raise RuntimeError(f"a box was not ready after {READY_SECONDS} s")
        chunk = os.read(process.stdout.fileno(), 1 << 16)
        if not chunk:
            raise RuntimeError(processes.how_it_ended(process))
        for head, _ in decoder.feed(chunk):
            if head["event"] == "ready":
                return
            raise RuntimeError(f"a box said {head}")
