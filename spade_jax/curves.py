"""Draw curves as SVG text, without any plotting library.

In: named series of points. Out: one picture with axes, a line per series and a legend.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#8a5fbf", "#c98a1b", "#4b5563", "#00a5a5", "#a0522d")
WIDTH, HEIGHT, LEFT, TOP, LEGEND = 640, 360, 60, 36, 18  # pixels


def svg(series: Mapping[str, Sequence[tuple[float, float]]], title: str, x: str) -> str:
    """Draw every series that has points.

    Args:
      series: legend -> points with rising x.
      x: name of the horizontal axis.
    """
    drawn = {name: points for name, points in series.items() if points}
    xs = [px for points in drawn.values() for px, _ in points]
    ys = [py for points in drawn.values() for _, py in points]
    across, up = (
        _ticks(min(xs, default=0), max(xs, default=1)),
        _ticks(min(ys, default=0), max(ys, default=1)),
    )
    right, bottom = WIDTH - 16, HEIGHT - 40

    def at(px: float, py: float) -> tuple[float, float]:
        return (
            LEFT + (px - across[0]) / (across[-1] - across[0]) * (right - LEFT),
            bottom - (py - up[0]) / (up[-1] - up[0]) * (bottom - TOP),
        )

    parts = [_text(LEFT, 22, title, 14), _text(right, HEIGHT - 8, x, 11, "end")]
    for tick in across:
        place = at(tick, up[0])[0]
        parts.append(_text(place, bottom + 16, f"{tick:g}", 11, "middle"))
    for tick in up:
        place = at(across[0], tick)[1]
        parts.append(_line([(LEFT, place), (right, place)], "#dddddd", 1))
        parts.append(_text(LEFT - 6, place + 4, f"{tick:g}", 11, "end"))
    for number, (name, points) in enumerate(drawn.items()):
        colour = COLOURS[number % len(COLOURS)]
        placed = [at(px, py) for px, py in points]
        parts.append(_line(placed, colour, 2))
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5" fill="{colour}"/>' for a, b in placed]
        row = HEIGHT + LEGEND * (number + 1)
        parts.append(_line([(LEFT, row - 4), (LEFT + 20, row - 4)], colour, 3))
        parts.append(_text(LEFT + 28, row, name, 11))
    height = HEIGHT + LEGEND * (len(drawn) + 1)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif"><rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _ticks(low: float, high: float) -> list[float]:
    """Choose up to seven round numbers whose first and last enclose the range."""
    span = high - low or abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(span / 5))
    step *= next(m for m in (1, 2, 5, 10) if span / (step * m) <= 5)
    first, last = math.floor(low / step), math.ceil(high / step)
    last = max(last, first + 1)
    return [round(step * number, 12) for number in range(first, last + 1)]


def _line(points: Sequence[tuple[float, float]], colour: str, width: int) -> str:
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _text(a: float, b: float, words: str, size: int, anchor: str = "start") -> str:
    return (
        f'<text x="{a:.1f}" y="{b:.1f}" font-size="{size}" text-anchor="{anchor}">'
        f"{html.escape(words)}</text>"
    )
