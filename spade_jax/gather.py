"""Gather the results of several runs: one table of final metrics, and curves.

In: work directories, each with the overrides that made it. Out: CSV, Markdown and SVG files.
Runs that differ in their seed only are also put together: mean and 95% interval over seeds.
"""

from __future__ import annotations

import collections
import csv
import dataclasses
import io
import math
from collections.abc import Sequence

import numpy as np
from etils import epath
from scipy import stats

from spade_jax import curves, metrics, sweep

SHOWN = ("eval/known", "eval/held_out", "rollout/win_rate", "env/regret", "env/validity")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """What one point has come to."""

    name: str  # identifier
    point: sweep.Point
    state: str  # done, failed, running, begun or waiting
    lines: list[dict]  # metrics.jsonl

    @property
    def iterations(self) -> int:
        """Count the iterations that the point has metrics of."""
        return self.lines[-1]["iteration"] + 1 if self.lines else 0

    def final(self) -> dict[str, float]:
        """Last value of every metric: an evaluation need not stand in the last line."""
        last: dict[str, float] = {}
        for line in self.lines:
            last |= {k: v for k, v in line.items() if v is not None and k != "iteration"}
        return last


def write(rows: Sequence[Row], folder: epath.Path, shown: Sequence[str] = SHOWN) -> list[str]:
    """Write `sweep.csv` (all metrics), `sweep.md` (those shown) and one SVG per metric shown.

    Returns:
      names of the files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {"sweep.csv": as_csv(rows), "sweep.md": as_markdown(rows, shown)}
    for name in shown:
        series = {
            sweep.describe(row.point): [
                (line["iteration"] + 1, line[name])
                for line in row.lines
                if line.get(name) is not None
            ]
            for row in rows
        }
        if any(series.values()):
            files[f"{metrics.slug(name)}.svg"] = curves.svg(series, title=name, x="iterations")
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return list(files)


def as_csv(rows: Sequence[Row]) -> str:
    """Write every metric of every point, empty where a point has none."""
    knobs, finals = _knobs(rows), [row.final() for row in rows]
    names = sorted({name for final in finals for name in final})
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["point", *knobs, "state", "iterations", *names])
    for row, final in zip(rows, finals, strict=True):
        given = dict(row.point)
        table.writerow(
            [row.name, *(given.get(knob, "") for knob in knobs), row.state, row.iterations]
            + [final.get(name, "") for name in names]
        )
    return out.getvalue()


def as_markdown(rows: Sequence[Row], shown: Sequence[str] = SHOWN) -> str:
    """Write the metrics shown, and below them means over seeds where seeds were swept."""
    knobs, finals = _knobs(rows), [row.final() for row in rows]
    names = [name for name in shown if any(name in final for final in finals)]
    body = []
    for row, final in zip(rows, finals, strict=True):
        given = dict(row.point)
        body.append(
            [row.name, *(str(given.get(knob, "")) for knob in knobs), row.state]
            + [str(row.iterations), *(_number(final.get(name)) for name in names)]
        )
    text = _table(["point", *knobs, "state", "iterations", *names], body)
    over_seeds = _over_seeds(rows, names)
    if over_seeds:
        others = [knob for knob in knobs if knob != sweep.SEED]
        text += "\nOver seeds, points that are done: mean ± half the 95% t interval.\n\n"
        text += _table([*others, "seeds", *names], over_seeds)
    return text


def _over_seeds(rows: Sequence[Row], names: Sequence[str]) -> list[list[str]]:
    groups = collections.defaultdict(list)
    for row in rows:
        if row.state == "done" and sweep.SEED in dict(row.point):
            groups[tuple(pair for pair in row.point if pair[0] != sweep.SEED)].append(row.final())
    knobs = [knob for knob in _knobs(rows) if knob != sweep.SEED]
    table = []
    for point, finals in groups.items():
        if len(finals) > 1:
            cells = [str(dict(point).get(knob, "")) for knob in knobs] + [str(len(finals))]
            table.append(cells + [_mean([f[n] for f in finals if n in f]) for n in names])
    return table


def _mean(found: list[float]) -> str:
    if len(found) < 2:
        return _number(found[0] if found else None)
    error = float(np.std(found, ddof=1)) / math.sqrt(len(found))
    half = float(stats.t.ppf(0.975, len(found) - 1)) * error
    return f"{np.mean(found):.4g} ± {half:.2g}"


def _knobs(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(knob for row in rows for knob, _ in row.point))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _table(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
