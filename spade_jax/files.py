"""Files of a work directory, which may be a folder or a bucket (`gs://...`): whole or not at all.

Everything goes through `etils.epath`. A file is replaced by one that was written beside it and
brought to the disk; in a bucket a write is atomic by itself.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterable, Iterator

from etils import epath


def at(path: epath.PathLike) -> epath.Path:
    """Name a folder or file; a local one absolute, so that a later change of directory is none."""
    named = epath.Path(path)
    return named if is_remote(named) else named.resolve()


def is_remote(path: epath.PathLike) -> bool:
    """Tell a bucket from a disk of this machine."""
    return "://" in os.fspath(path)


def replace(path: epath.PathLike, text: str) -> None:
    """Write a file so that a kill leaves the old one or the new one."""
    path = epath.Path(path)
    if is_remote(path):
        path.write_text(text)
        return
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def whole_lines(path: epath.PathLike) -> list[str]:
    """Read the lines of a file without a torn last one; an absent file has none."""
    path = epath.Path(path)
    if not path.exists():
        return []
    return path.read_bytes().decode("utf-8", errors="replace").split("\n")[:-1]


def join(lines: Iterable[str]) -> str:
    """Put lines together, each with its end."""
    return "".join(f"{line}\n" for line in lines)


@contextlib.contextmanager
def fetched(path: epath.PathLike) -> Iterator[str]:
    """Give a local file with the content of one that may lie in a bucket; a local one is itself.

    Raises:
      FileNotFoundError: there is none.
    """
    if not is_remote(path):
        yield os.fspath(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        local = pathlib.Path(folder) / epath.Path(path).name
        local.write_bytes(epath.Path(path).read_bytes())
        yield str(local)


@contextlib.contextmanager
def written(path: epath.PathLike) -> Iterator[str]:
    """Give a local name to write to; what stands there at the end is put where it belongs."""
    if not is_remote(path):
        yield os.fspath(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        local = pathlib.Path(folder) / epath.Path(path).name
        yield str(local)
        epath.Path(path).write_bytes(local.read_bytes())
