"""Operations of matrix products and convolutions in compiled HLO.

On TPUs every product is a convolution: batch axes become window axes with dilation or padding, so
the positions at which the window lies inside the array have to be counted.
Source: `HandleDot` and `HandleConvolution` of `xla/service/hlo_cost_analysis.cc`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re

import numpy as np

from launch import hlo


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Window:
    """One axis of a convolution's window."""

    size: int
    stride: int = 1
    low: int = 0  # padding before; below 0 it cuts
    base: int = 1  # dilation of the array
    dilation: int = 1  # of the window


def dot(computation: hlo.Computation, instruction: hlo.Instruction) -> float:
    """Count 2 per multiply-add of a `dot`."""
    left = computation[instruction.operands[0]].array
    contracted = [left.sizes[axis] for axis in instruction.numbers("lhs_contracting_dims")]
    return 2.0 * instruction.array.elements * math.prod(contracted)


def convolution(computation: hlo.Computation, instruction: hlo.Instruction) -> float:
    """Count 2 per multiply-add of a `convolution`, where the window lies inside the array.

    Raises:
      ValueError: the dimension labels are not understood.
    """
    labels = re.fullmatch(r"(\w+)_(\w+)->(\w+)", instruction.word("dim_labels"))
    if labels is None:
        raise ValueError(f"dim_labels of {instruction.name} not understood: update launch/hlo.py.")
    left_labels, right_labels, result_labels = labels.groups()
    left, right = (computation[name].array for name in instruction.operands[:2])
    places = []
    for axis, window in enumerate(_windows(instruction.attributes)):
        label = str(axis)
        length = left.sizes[left_labels.index(label)]
        outputs = instruction.array.sizes[result_labels.index(label)]
        places.append(_positions(window, length, outputs))
    groups = instruction.number("feature_group_count", 1)
    rows = left.sizes[left_labels.index("b")] / instruction.number("batch_group_count", 1)
    inputs = left.sizes[left_labels.index("f")] / groups
    return 2.0 * inputs * right.sizes[right_labels.index("o")] * rows * math.prod(places)


def _windows(attributes: str) -> list[_Window]:
    """Read `window={size=8x4 stride=7x1 pad=0_0x3_3 lhs_dilate=8x1 rhs_reversal=0x1}`."""
    match = re.search(r"window=\{([^}]*)\}", attributes)
    if match is None:
        return []
    parts = dict(part.split("=") for part in match.group(1).split())
    sizes = [int(size) for size in parts["size"].split("x")]

    def column(name: str, default: str) -> list[str]:
        return parts[name].split("x") if name in parts else [default] * len(sizes)

    columns = zip(
        sizes,
        map(int, column("stride", "1")),
        (int(pad.split("_")[0]) for pad in column("pad", "0_0")),
        map(int, column("lhs_dilate", "1")),
        map(int, column("rhs_dilate", "1")),
        strict=True,
    )
    return [
        _Window(size=size, stride=stride, low=low, base=base, dilation=dilation)
        for size, stride, low, base, dilation in columns
    ]


@functools.lru_cache(maxsize=4096)
def _positions(window: _Window, length: int, outputs: int) -> int:
    """Count the pairs (output, window place) that meet an element and not padding or a hole."""
    found = 0
    starts = np.arange(outputs, dtype=np.int64) * window.stride - window.low
    for place in range(window.size):
        at = starts + place * window.dilation
        inside = (at >= 0) & (at < (length - 1) * window.base + 1)
        found += int((inside & (at % window.base == 0)).sum())
    return found
