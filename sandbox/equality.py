"""Compare an answer with what was expected, as strict JSON, outside the box."""

from __future__ import annotations

import math
from typing import Any


def same(answer: Any, expected: Any, tolerance: float = 0.0) -> bool:
    """Tell whether two JSON values are the same, types included: True is not 1, 14.0 is not 14.

    Args:
      tolerance: largest difference between two floats, absolute and relative; 0 asks for equality.
    """
    if type(answer) is not type(expected):
        return False
    if isinstance(expected, list):
        return len(answer) == len(expected) and all(
            same(a, e, tolerance) for a, e in zip(answer, expected, strict=True)
        )
    if isinstance(expected, dict):
        return answer.keys() == expected.keys() and all(
            same(answer[key], expected[key], tolerance) for key in expected
        )
    if isinstance(expected, float) and tolerance:
        return math.isclose(answer, expected, rel_tol=tolerance, abs_tol=tolerance)
    return answer == expected
