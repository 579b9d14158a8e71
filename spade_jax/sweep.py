"""Sweeps: which overrides of a configuration are tried, each with an identifier that stays.

In: knobs with their values, put together by `product`, `zipped`, `chain`, `random` and `seeds`.
Out: points. A sweep file returns a list of them from `get_config()`; see `experiments/sweeps`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

Point = tuple[tuple[str, Any], ...]  # (dotted knob, value), in the order in which they were given
SEED = "seed"


class SweepError(Exception):
    """A sweep that cannot be run; the message names point and knob."""


def values(knob: str, options: Iterable[Any]) -> list[Point]:
    """Try one knob at several values."""
    return [((knob, option),) for option in options]


def seeds(count: int, first: int = 0) -> list[Point]:
    """Try `count` seeds of the run."""
    return values(SEED, range(first, first + count))


def product(*axes: Sequence[Point]) -> list[Point]:
    """Combine every point of each axis with every point of the others; the last turns fastest."""
    points: list[Point] = [()]
    for axis in axes:
        points = [point + other for point in points for other in axis]
    return points


def zipped(*axes: Sequence[Point]) -> list[Point]:
    """Combine the first points of all axes, the second ones, and so on.

    Raises:
      SweepError: the axes differ in length.
    """
    lengths = [len(axis) for axis in axes]
    if len(set(lengths)) > 1:
        raise SweepError(f"zipped: axes of {lengths} points; give all of them as many.")
    return [sum(together, ()) for together in zip(*axes, strict=True)]


def chain(*sweeps: Sequence[Point]) -> list[Point]:
    """Try the points of one sweep after those of another."""
    return [point for sweep in sweeps for point in sweep]


def random(
    draws: dict[str, Callable[[np.random.Generator], Any]], count: int, seed: int = 0
) -> list[Point]:
    """Draw `count` points; the same seed gives the same ones, and more of them only adds.

    Args:
      draws: knob -> function of a random generator, such as `uniform(0, 1)`.
    """
    streams = [np.random.default_rng([seed, number]) for number in range(count)]
    return [tuple((knob, draw(rng)) for knob, draw in draws.items()) for rng in streams]


def uniform(low: float, high: float) -> Callable[[np.random.Generator], float]:
    """Draw a float evenly from [low, high)."""
    return lambda rng: float(rng.uniform(low, high))


def log_uniform(low: float, high: float) -> Callable[[np.random.Generator], float]:
    """Draw a float whose logarithm is even; both bounds above 0."""
    return lambda rng: float(math.exp(rng.uniform(math.log(low), math.log(high))))


def integers(low: int, high: int) -> Callable[[np.random.Generator], int]:
    """Draw an integer from low to high, both included."""
    return lambda rng: int(rng.integers(low, high + 1))


def choice(options: Sequence[Any]) -> Callable[[np.random.Generator], Any]:
    """Draw one of some values."""
    return lambda rng: options[int(rng.integers(len(options)))]


def identifier(point: Point) -> str:
    """Name a point: ten hexadecimal digits that depend on knobs and values, not on their order."""
    text = json.dumps(sorted([knob, _plain(value)] for knob, value in point), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def check(points: Any) -> dict[str, Point]:
    """Look for what would make two results one, before anything runs.

    Returns:
      identifier -> point, in the order of the sweep.
    Raises:
      SweepError: no points, a knob twice in a point, or a point twice in the sweep.
    """
    if not isinstance(points, (list, tuple)) or not points:
        raise SweepError(
            f"the sweep file returned {points!r:.80}, not a list of points. Return "
            "sweep.product(...), sweep.chain(...) or another of spade_jax.sweep."
        )
    named: dict[str, Point] = {}
    for number, point in enumerate(points):
        knobs = [knob for knob, _ in point]
        twice = sorted({knob for knob in knobs if knobs.count(knob) > 1})
        if twice:
            raise SweepError(
                f"point {number} ({describe(point)}) sets {', '.join(twice)} more than once. "
                "Name each knob in one axis only."
            )
        name = identifier(point)
        if name in named:
            raise SweepError(
                f"point {number} ({describe(point)}) stands in the sweep more than once. "
                "Remove one of them."
            )
        named[name] = tuple(point)
    return named


def describe(point: Point) -> str:
    """Write a point for a person; the empty one is the configuration as it stands."""
    return ", ".join(f"{knob}={_spell(value)}" for knob, value in point) or "as configured"


def as_flags(point: Point) -> list[str]:
    """Write a point as the flags of a door."""
    return [f"--config.{knob}={_spell(value)}" for knob, value in point]


def _spell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def _plain(value: Any) -> Any:
    """Make two spellings of one value equal: a float that is whole stays apart from its integer."""
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise SweepError(f"{value!r} is a {type(value).__name__}: a knob takes plain values only.")
