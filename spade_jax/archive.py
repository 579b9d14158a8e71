"""The archive: every program that ever became an environment, one line each, appended and kept.

In: environments as they are admitted. Out: their numbers, and an environment for a number. The file
is the only place where programs lie, so memory and checkpoints grow with numbers and not with text:
a checkpoint says how many lines are its own. A continued run cuts off what a killed one wrote after
its checkpoint.
"""

from __future__ import annotations

import array
import dataclasses
import json
import os
import shutil
import tempfile

from etils import epath

from spade_jax import files, records

CHUNK_BYTES = 1 << 26  # the system reads and writes at most 2 GiB at once


class ArchiveError(RuntimeError):
    """The file of programs does not hold what the checkpoint counts."""


class Archive:
    """Owns the file of programs of one run."""

    def __init__(self, path: str | os.PathLike | None = None, count: int = 0):
        """Open a file, of which the first `count` lines are taken over.

        Nothing is cut off before the first `append`, so that a reader changes nothing.

        Args:
          path: made if missing; None keeps the programs in a temporary file.
        Raises:
          ArchiveError: the file has fewer lines.
        """
        self.path = None if path is None else epath.Path(path)
        self._remote = self.path is not None and files.is_remote(self.path)
        if self.path is None or self._remote:
            self._file = tempfile.TemporaryFile(buffering=0)
            if self._remote and self.path.exists():
                with (
                    self.path.open("rb") as kept,
                    open(self._file.fileno(), "wb", closefd=False) as to,
                ):
                    shutil.copyfileobj(kept, to, CHUNK_BYTES)
                self._file.seek(0)
        else:
            mode = "r+b" if self.path.exists() else "w+b"
            self._file = open(self.path, mode, buffering=0)
        self._ends = array.array("q", [0])
        self._trimmed = False
        with open(self._file.fileno(), "rb", closefd=False) as lines:
            for _ in range(count):
                size = len(line := lines.readline())
                if not line.endswith(b"\n"):
                    raise ArchiveError(
                        f"{self.path} holds {len(self)} whole programs, the checkpoint counts "
                        f"{count}. Restore the file, or use another work directory."
                    )
                self._ends.append(self._ends[-1] + size)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def append(self, environment: records.Environment) -> int:
        """Add an environment; give its number.

        Raises:
          OSError: the disk is full or read-only.
        """
        if not self._trimmed:
            self._file.truncate(self._ends[-1])
            self._trimmed = True
        line = json.dumps(dataclasses.asdict(environment)).encode() + b"\n"
        if os.pwrite(self._file.fileno(), line, self._ends[-1]) != len(line):
            raise OSError(f"{self.path}: the disk took only a part of a program. Free space.")
        self._ends.append(self._ends[-1] + len(line))
        return len(self) - 1

    def read(self, number: int) -> records.Environment:
        """Give the environment of a number."""
        start, end = self._ends[number], self._ends[number + 1]
        return records.Environment(**json.loads(os.pread(self._file.fileno(), end - start, start)))

    def sync(self) -> None:
        """Return when everything is on disk; to a bucket the whole file is written.

        There it is written beside the one that checkpoints count on, which it then replaces: what
        breaks off in between leaves that one whole.
        """
        if not self._remote:
            os.fsync(self._file.fileno())
            return
        partial = self.path.with_name(self.path.name + ".partial")
        with partial.open("wb") as to:
            for start in range(0, self._ends[-1], CHUNK_BYTES):
                size = min(CHUNK_BYTES, self._ends[-1] - start)
                to.write(os.pread(self._file.fileno(), size, start))
        partial.replace(self.path)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
