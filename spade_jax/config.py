"""Turn a ConfigDict into the frozen dataclasses that the rooms see, and back.

An experiment is a nested ConfigDict of plain values. `build` checks it against a dataclass, field
by field: an unknown key, a value of the wrong type and a missing one stop the run with the full
dotted path. Field types may be bool, int, float, str, an Enum, a Literal, a tuple, a mapping with
str keys, a dataclass, and unions of these with or without None.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import difflib
import enum
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

import ml_collections
from ml_collections import config_dict

T = TypeVar("T")
_SCALARS = (bool, int, float, str)


class ConfigError(ValueError):
    """A configuration that does not fit its dataclass."""


class _UnknownKnob(ConfigError):
    """A key that no field has; its text is the dotted path."""


def build(cls: type[T], values: ml_collections.ConfigDict | Mapping[str, Any], path: str = "") -> T:
    """Make an instance of the dataclass `cls` from nested values.

    Args:
      cls: dataclass; fields without a value take its defaults.
      values: ConfigDict or mapping; a nested section is one again.
      path: dotted path of `values` in the whole config, for error messages.
    Raises:
      ConfigError: unknown key, wrong type, missing value, or a value that `cls` itself refuses.
    """
    try:
        return _build(cls, values, path)
    except _UnknownKnob as error:
        name = str(error).removeprefix(f"{path}.")
        raise ConfigError(explain_unknown(cls, name, path)) from error


def _build(cls: type[T], values: Any, path: str) -> T:
    if not isinstance(values, (ml_collections.ConfigDict, Mapping)):
        raise _wrong_type(path, values, f"a section with the fields of {cls.__name__}")
    values = dict(values.items())
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    for key in values:
        if key not in fields:
            raise _UnknownKnob(_join(path, key))
    given = {}
    for name, field in fields.items():
        if name in values and (values[name] is not None or _allows_none(hints[name])):
            given[name] = _convert(values[name], hints[name], _join(path, name))
        elif _has_no_default(field) or name in values:
            raise ConfigError(
                f"{_join(path, name)} has no value: it must be {_spell(hints[name])}. "
                f"Set it in the experiment file or with --config.{_join(path, name)}=..."
            )
    try:
        return cls(**given)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{path}: {error}" if path else str(error)) from error


def to_config_dict(source: Any) -> ml_collections.ConfigDict:
    """Write a dataclass instance, or the defaults of a dataclass, as a ConfigDict.

    `build(type(instance), to_config_dict(instance))` equals `instance`. A field without a default
    becomes a typed placeholder that reads as None until it is set.
    """
    cls = source if isinstance(source, type) else type(source)
    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"to_config_dict takes a dataclass or an instance of one, got {source!r}.")
    hints = typing.get_type_hints(cls)
    result = ml_collections.ConfigDict()
    for field in dataclasses.fields(cls):
        if field.init:
            value = getattr(source, field.name) if source is not cls else _default(field, hints)
            result[field.name] = _plain(value, hints[field.name])
    return result


def describe(source: Any, path: str = "") -> str:
    """List an instance or a ConfigDict as lines `dotted.name = value`, in field order."""
    values = source if isinstance(source, ml_collections.ConfigDict) else to_config_dict(source)
    names = values.keys()
    if dataclasses.is_dataclass(source):
        names = [field.name for field in dataclasses.fields(source) if field.init]
    lines = []
    for name in names:
        inner, full = values[name], _join(path, name)
        if isinstance(inner, ml_collections.ConfigDict):
            attribute = getattr(source, name, None)
            inner = attribute if dataclasses.is_dataclass(attribute) else inner
            lines.append(describe(inner, full))
        else:
            lines.append(f"{full} = {inner!r}")
    return "\n".join(line for line in lines if line)


def knobs(cls: type) -> list[str]:
    """List the dotted names of all fields of a dataclass and of the sections below it."""
    hints = typing.get_type_hints(cls)
    names = []
    for field in dataclasses.fields(cls):
        names.append(field.name)
        for option in (hints[field.name], *typing.get_args(hints[field.name])):
            if dataclasses.is_dataclass(option):
                names += [_join(field.name, name) for name in knobs(option)]
    return names


def explain_unknown(cls: type, name: str, path: str = "") -> str:
    """Say that `cls` has no knob of this dotted name, and which one is nearest.

    Args:
      name: dotted, below `path`.
      path: where `cls` stands in the whole config.
    """
    section, _, word = re.sub(r"\[\d+\]", "", name).rpartition(".")  # without tuple indices

    def likeness(knob: str) -> tuple[float, float]:
        match = difflib.SequenceMatcher(None, word, knob.rpartition(".")[2])
        return match.ratio(), difflib.SequenceMatcher(None, name, knob).ratio()

    near = max(knobs(cls), key=likeness)
    meant = f"Did you mean {_join(path, near)}? " if likeness(near)[0] >= 0.6 else ""
    beside = [knob.rpartition(".") for knob in knobs(cls)]
    inside = ", ".join(last for above, _, last in beside if above == section)
    where = f"section '{_join(path, section)}'" if _join(path, section) else "the config"
    if not inside:
        return f"{_join(path, name)} is not a knob. {meant}There is no {where}."
    return f"{_join(path, name)} is not a knob. {meant}In {where} stand: {inside}."


def _convert(value: Any, hint: Any, path: str) -> Any:
    origin = typing.get_origin(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _convert_union(value, hint, path)
    if origin is typing.Literal:
        return _convert_literal(value, hint, path)
    if dataclasses.is_dataclass(hint):
        return value if isinstance(value, hint) else _build(hint, value, path)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _convert_enum(value, hint, path)
    if hint is tuple or origin is tuple:
        return _convert_tuple(value, typing.get_args(hint), path)
    if hint is dict or origin in (dict, collections.abc.Mapping):
        return _convert_mapping(value, typing.get_args(hint), path)
    if hint is float and type(value) is int:
        return float(value)
    if hint in (*_SCALARS, type(None)) and type(value) is hint:
        return value
    if hint not in (*_SCALARS, type(None)):
        raise TypeError(f"{path}: config.py does not know the field type {_spell(hint)}.")
    raise _wrong_type(path, value, _spell(hint))


def _convert_union(value: Any, hint: Any, path: str) -> Any:
    options = typing.get_args(hint)
    if value is None and type(None) in options:
        return None
    options = [option for option in options if option is not type(None)]
    if len(options) == 1:
        return _convert(value, options[0], path)
    for option in options:
        try:
            return _convert(value, option, path)
        except ConfigError:
            continue
    raise _wrong_type(path, value, _spell(hint))


def _convert_literal(value: Any, hint: Any, path: str) -> Any:
    options = typing.get_args(hint)
    for option in options:
        if type(option) is type(value) and option == value:
            return option
    raise ConfigError(
        f"{path}={value!r} must be one of {', '.join(map(repr, options))}"
        f"{_did_you_mean(str(value), [str(option) for option in options])}"
    )


def _convert_enum(value: Any, hint: type[enum.Enum], path: str) -> enum.Enum:
    for member in hint:
        if value is member or (isinstance(value, str) and value in (member.name, member.value)):
            return member
    names = [member.value if isinstance(member.value, str) else member.name for member in hint]
    raise ConfigError(
        f"{path}={value!r} must be one of {', '.join(map(repr, names))}"
        f"{_did_you_mean(str(value), names)}"
    )


def _convert_tuple(value: Any, items: tuple[Any, ...], path: str) -> tuple[Any, ...]:
    if not isinstance(value, (tuple, list)):
        raise _wrong_type(path, value, "a tuple")
    if not items:
        return tuple(value)
    if len(items) == 2 and items[1] is Ellipsis:
        items = (items[0],) * len(value)
    if len(items) != len(value):
        raise _wrong_type(path, value, f"a tuple of {len(items)} values")
    return tuple(
        _convert(entry, hint, f"{path}[{index}]")
        for index, (entry, hint) in enumerate(zip(value, items, strict=True))
    )


def _convert_mapping(value: Any, items: tuple[Any, ...], path: str) -> dict[str, Any]:
    if not isinstance(value, (ml_collections.ConfigDict, Mapping)):
        raise _wrong_type(path, value, "a mapping with names as keys")
    hint = items[1] if items else Any
    return {key: _convert(entry, hint, _join(path, key)) for key, entry in value.items()}


def _plain(value: Any, hint: Any) -> Any:
    """Write one field's value as something that a ConfigDict holds and a flag can set."""
    if isinstance(value, type) and dataclasses.is_dataclass(value):
        return to_config_dict(value)
    if value is None:
        options = typing.get_args(hint) if not isinstance(hint, type) else (hint,)
        known = [option for option in options if option in _SCALARS]
        return config_dict.placeholder(known[0]) if len(known) == 1 else None
    if dataclasses.is_dataclass(value):
        return to_config_dict(value)
    if isinstance(value, (tuple, list)):
        return tuple(_plain(entry, Any) for entry in value)
    if isinstance(value, Mapping):
        section = ml_collections.ConfigDict()
        for key, entry in value.items():
            section[key] = _plain(entry, Any)
        return section
    return value


def _default(field: dataclasses.Field, hints: Mapping[str, Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    hint = hints[field.name]
    return hint if dataclasses.is_dataclass(hint) else None


def _has_no_default(field: dataclasses.Field) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _allows_none(hint: Any) -> bool:
    return hint in (Any, None, type(None)) or type(None) in typing.get_args(hint)


def _did_you_mean(word: str, options: list[str]) -> str:
    near = difflib.get_close_matches(word, options, n=1, cutoff=0.5)
    return f". Did you mean {near[0]}?" if near else ""


def _wrong_type(path: str, value: Any, expected: str) -> ConfigError:
    shown = repr(value) if len(repr(value)) <= 80 else repr(value)[:77] + "..."
    name = path or "the config"
    return ConfigError(f"{name}={shown} is a {type(value).__name__}; it must be {expected}.")


def _spell(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or str(name)
