"""Records as JSON and back, by their type annotations.

In: frozen dataclasses of plain values. Out: JSON-able values, and the same records again. Numbers
keep every bit; NaN and infinities are allowed, as in Python's `json`.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import types
import typing
from typing import Any, TypeVar

Record = TypeVar("Record")


def encode(value: Any) -> Any:
    """Turn records, tuples, lists and dicts of plain values into JSON-able ones.

    Raises:
      TypeError: a value that JSON cannot carry.
    """
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if dataclasses.is_dataclass(value):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return [[encode(key), encode(item)] for key, item in value.items()]
    raise TypeError(f"{type(value).__name__} {value!r} cannot be written as JSON.")


def decode(kind: type[Record], value: Any) -> Record:
    """Read what `encode` wrote as a value of the annotated type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        (kind,) = (option for option in arguments if option is not type(None))
        return decode(kind, value)
    if dataclasses.is_dataclass(kind):
        return kind(**{name: decode(hint, value[name]) for name, hint in _fields(kind)})
    if origin is tuple:
        repeated = len(arguments) == 2 and arguments[1] is Ellipsis
        hints = [arguments[0]] * len(value) if repeated else arguments
        return tuple(decode(hint, item) for hint, item in zip(hints, value, strict=True))
    if origin is list:
        return [decode(arguments[0], item) for item in value]
    if origin is dict:
        return {decode(arguments[0], k): decode(arguments[1], v) for k, v in value}
    if kind is collections.Counter:
        return collections.Counter(dict(map(tuple, value)))
    return value


@functools.cache
def _fields(kind: type) -> list[tuple[str, Any]]:
    hints = typing.get_type_hints(kind)
    return [(field.name, hints[field.name]) for field in dataclasses.fields(kind)]
