"""Tensors of safetensors files, read one at a time, with errors that name file and tensor.

The format: eight bytes with the size of the header, a JSON header of dtype, shape and place, then
the numbers. Tensors are read and not memory-mapped, so that what was read does not stay in memory.

Source: https://github.com/huggingface/safetensors, section "Format".
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import struct
from collections.abc import Mapping

import ml_dtypes
import numpy as np

_DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "F64": np.float64}
_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
_INDEX = "model.safetensors.index.json"


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the text names file and tensor."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stored:
    """Where a tensor stands."""

    file: pathlib.Path
    dtype: str
    shape: tuple[int, ...]
    start: int  # byte in the file
    size: int  # bytes

    def read(self) -> np.ndarray:
        """Read the numbers."""
        with self.file.open("rb") as file:
            file.seek(self.start)
            raw = bytearray(self.size)
            file.readinto(raw)
        return np.frombuffer(raw, _DTYPES[self.dtype]).reshape(self.shape)


def scan(folder: str | os.PathLike) -> dict[str, Stored]:
    """Find all tensors of a Hugging Face directory, in the order in which they are stored.

    Raises:
        CheckpointError: no weights, a missing or cut file, a dtype that is not float.
    """
    folder = pathlib.Path(folder)
    files = _files(folder)
    found = {}
    for path in files:
        found.update(scan_file(path))
    return found


def scan_file(path: pathlib.Path) -> dict[str, Stored]:
    """Find the tensors of one file; raises as `scan`."""
    total = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 2 <= length <= min(total - 8, 100 << 20):
            raise CheckpointError(f"{path} is no safetensors file, or cut within its header.")
        text = file.read(length)
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        entries = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
        found = {name: _stored(path, name, entry, 8 + length) for name, entry in entries}
    except (UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: its header is not readable ({error!r}).") from error
    for name, stored in found.items():
        if stored.start + stored.size > total:
            raise CheckpointError(
                f"{path} is cut: tensor {name} ends at byte {stored.start + stored.size} and the "
                f"file has {total}. Copy or download it again."
            )
    return found


def write(path: str | os.PathLike, tensors: Mapping[str, tuple], read) -> None:
    """Write one file, asking for one tensor at a time.

    Args:
        path: of the file; it appears when it is whole.
        tensors: name -> (dtype, shape), in the order in which to store them.
        read: name -> array of that dtype and shape.
    """
    header, place = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape) in tensors.items():
        size = math.prod(shape) * np.dtype(dtype).itemsize
        offsets = [place, place + size]
        header[name] = {
            "dtype": _NAMES[np.dtype(dtype)],
            "shape": list(shape),
            "data_offsets": offsets,
        }
        place += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = pathlib.Path(path)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with partial.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, (dtype, _) in tensors.items():
            array = np.ascontiguousarray(read(name), dtype)
            file.write(array.view(np.uint8).data if array.ndim else array.tobytes())
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
    index, single = folder / _INDEX, folder / "model.safetensors"
    if index.is_file():
        try:
            where = json.loads(index.read_text())["weight_map"]
        except (json.JSONDecodeError, KeyError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{index} is not readable ({error!r}).") from error
        for name, file in where.items():
            if not (folder / file).is_file():
                raise CheckpointError(
                    f"{folder / file} is missing: {index.name} says that it holds tensor {name}. "
                    f"Copy or download it again."
                )
        return [folder / file for file in dict.fromkeys(where.values())]
    if single.is_file():
        return [single]
    pickled = sorted(folder.glob("*.bin")) + sorted(folder.glob("*.pth"))
    hint = f" {pickled[0].name} is pickled code; save the model as safetensors." if pickled else ""
    raise CheckpointError(f"{folder} has neither model.safetensors nor {_INDEX}.{hint}")


def _stored(path: pathlib.Path, name: str, entry: dict, base: int) -> Stored:
    dtype, shape, (start, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    if dtype not in _DTYPES:
        raise CheckpointError(
            f"{path}: tensor {name} is {dtype}; {', '.join(_DTYPES)} can be read. Convert it first."
        )
    size = math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize
    if end - start != size:
        raise CheckpointError(
            f"{path}: tensor {name} of shape {shape} and {dtype} needs {size} bytes and its header "
            f"gives it {end - start}."
        )
    return Stored(file=path, dtype=dtype, shape=shape, start=base + start, size=size)
