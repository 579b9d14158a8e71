"""Frames between the host and a box, and strict JSON for what a box or a program sends.

A frame is two big-endian 32-bit lengths, a JSON head and a payload. Everything that comes from a
box is hostile: lengths are capped, heads are type-checked, text is decoded without failing.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

HEAD = struct.Struct(">II")
HEAD_BYTES = 1 << 16
PAYLOAD_BYTES = 256 << 20
MAX_DEPTH = 100


class ProtocolError(Exception):
    """A box sent something that is not a frame."""


def encode(head: dict, *parts: bytes) -> bytes:
    """Join a head and payload parts into one frame."""
    raw = json.dumps(head).encode()
    return b"".join((HEAD.pack(len(raw), sum(map(len, parts))), raw, *parts))


class Decoder:
    """Cuts a stream of bytes into frames."""

    def __init__(self):
        self.buffer = bytearray()

    def feed(self, chunk: bytes) -> list[tuple[dict, bytes]]:
        """Take bytes; give the frames that are complete.

        Raises:
          ProtocolError: a length over the cap, or a head that is not a JSON object.
        """
        self.buffer += chunk
        frames = []
        while len(self.buffer) >= 8:
            head, body = HEAD.unpack_from(self.buffer)
            if head > HEAD_BYTES or body > PAYLOAD_BYTES:
                raise ProtocolError(f"frame of {head}+{body} bytes is over the cap")
            if len(self.buffer) < 8 + head + body:
                break
            value = strict_json(bytes(self.buffer[8 : 8 + head]))
            if not isinstance(value, dict) or not isinstance(value.get("event"), str):
                raise ProtocolError("the head of a frame is not an object with an event")
            frames.append((value, bytes(self.buffer[8 + head : 8 + head + body])))
            del self.buffer[: 8 + head + body]
        return frames


def strict_json(raw: bytes) -> Any:
    """Decode JSON without NaN, without deep nesting, without numbers of thousands of digits.

    Raises:
      ProtocolError: it is not such JSON.
    """
    try:
        value = json.loads(raw.decode("utf-8", "strict"), parse_constant=refuse_constant)
        shallow(value, 0)
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProtocolError(f"not strict JSON: {type(error).__name__}: {error}"[:200]) from None
    return clean(value) if b"\\u" in raw else value


def refuse_constant(name: str) -> None:
    """Refuse NaN and Infinity, which Python's JSON reader would take."""
    raise ValueError(f"{name} is not a JSON number")


def shallow(value: Any, depth: int) -> None:
    """Refuse what is nested too deep, and numbers like 1e999, which are read as infinity."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict):
        value = value.values()
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number beyond the range of floats")
    elif not isinstance(value, list):
        return
    for item in value:
        shallow(item, depth + 1)


def clean(value: Any) -> Any:
    """Replace lone surrogates, which JSON can carry and UTF-8 cannot."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return value
