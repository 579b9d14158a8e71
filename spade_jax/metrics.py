"""Metrics of a run: one JSON line per iteration, TensorBoard, readable samples, a progress line.

In the work directory stand `metrics.jsonl` (each iteration once, rising), `tensorboard/` and
`samples/` (one text file per iteration). `metric_names.py` says what every name means.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import os
import re
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorboardX
from etils import epath

from spade_jax import files, metric_names

METRICS = metric_names.METRICS
_Z95 = 1.959964  # two-sided 95% quantile of the normal distribution


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean with its 95% interval."""

    mean: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return (self.high - self.low) / 2


class MetricWriter:
    """Owns the metric files of a work directory; one `write` per iteration.

    A bucket cannot be appended to: there `metrics.jsonl` is written whole each time, and
    TensorBoard writes to a local folder whose files are copied.
    """

    def __init__(self, workdir: epath.PathLike, resume_step: int):
        """Open the files and forget what a killed run wrote past its checkpoint.

        Args:
          workdir: directory of the run; made if missing.
          resume_step: last iteration of the checkpoint; later lines and samples are removed, so
            that the continued run writes them again. -1 for a new run.
        Raises:
          ValueError: metrics.jsonl holds a line, other than a torn last one, that is no metric.
        """
        self._workdir = epath.Path(workdir)
        self._path = self._workdir / "metrics.jsonl"
        self._samples = self._workdir / "samples"
        self._samples.mkdir(parents=True, exist_ok=True)
        kept = [line for line in read_metrics(self._path) if line["iteration"] <= resume_step]
        self._lines = [json.dumps(line) for line in kept]
        files.replace(self._path, files.join(self._lines))
        for path in self._samples.glob("*.txt"):
            if path.stem.isdigit() and int(path.stem) > resume_step:
                path.unlink()
        self._last = kept[-1]["iteration"] if kept else -1
        remote = files.is_remote(workdir)
        self._file = None if remote else self._path.open("a", encoding="utf-8")
        self._local = tempfile.TemporaryDirectory() if remote else None
        self._board = tensorboardX.SummaryWriter(
            self._local.name if self._local else str(self._workdir / "tensorboard"),
            purge_step=resume_step + 1,
            filename_suffix=f".{resume_step + 1}.{os.getpid()}",  # else a fast restart overwrites
        )

    def write(self, iteration: int, metrics: Mapping[str, Any], sample: str = "") -> None:
        """Write one iteration to all files, on disk when it returns.

        Args:
          iteration: greater than that of every line before.
          metrics: name -> Python or NumPy number; a non-finite one is stored as null.
          sample: text for people: what both roles wrote.
        Raises:
          KeyError: a name that METRICS does not have.
          ValueError: `iteration` does not rise.
          OSError: the disk is full or read-only.
        """
        if iteration <= self._last:
            raise ValueError(
                f"metrics of iteration {iteration} come after those of {self._last}; each "
                "iteration is written once. Open the writer with resume_step=the checkpoint's."
            )
        line = {"iteration": int(iteration)} | check(metrics)
        try:
            self._append(json.dumps(line))
            if sample:
                files.replace(self._samples / f"{iteration:06d}.txt", sample.rstrip("\n") + "\n")
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot write the metrics of iteration {iteration} ({error.strerror}). Free space "
                f"or fix permissions, then start the same command again",
                str(self._path),
            ) from error
        self._last = iteration
        for name, value in line.items():
            if value is not None and name != "iteration":
                self._board.add_scalar(name, value, iteration)
        if sample:
            self._board.add_text("sample", f"```\n{sample}\n```", iteration)
        self._board.flush()
        if self._local is not None:
            self._copy_board()

    def close(self) -> None:
        """Close the files."""
        self._board.close()
        if self._local is None:
            self._file.close()
        else:
            self._copy_board()
            self._local.cleanup()

    def _append(self, line: str) -> None:
        if self._local is not None:
            self._lines.append(line)
            files.replace(self._path, files.join(self._lines))
            return
        self._file.write(line + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _copy_board(self) -> None:
        board = self._workdir / "tensorboard"
        board.mkdir(parents=True, exist_ok=True)
        for path in epath.Path(self._local.name).iterdir():
            (board / path.name).write_bytes(path.read_bytes())


def read_metrics(path: epath.PathLike) -> list[dict[str, Any]]:
    """Read metrics.jsonl, without a torn last line; an absent file is an empty list.

    Raises:
      ValueError: a line that is not a JSON object with a rising "iteration".
    """
    path = epath.Path(path)
    if not path.exists():
        return []
    rows = path.read_bytes().split(b"\n")
    rows.pop()  # empty after a whole last line, torn otherwise
    lines = []
    for number, row in enumerate(rows, start=1):
        try:
            line = json.loads(row)
            rises = line["iteration"] > (lines[-1]["iteration"] if lines else -math.inf)
        except (ValueError, KeyError, TypeError):
            rises = False
        if not rises:
            raise ValueError(
                f"{path}:{number} is not one JSON object with a rising iteration: {row[:80]!r}. "
                "Remove that line, or use another work directory."
            )
        lines.append(line)
    return lines


def check(metrics: Mapping[str, Any]) -> dict[str, float | int | None]:
    """Return the metrics as JSON numbers, sorted by name, after a look at METRICS.

    Raises:
      KeyError: a name that is not in METRICS.
      TypeError: a value that is no Python or NumPy number.
    """
    return {name: _number(name, metrics[name]) for name in sorted(metrics)}


def meaning(name: str) -> str:
    """Return what METRICS says about a name.

    Raises:
      KeyError: the name is not in METRICS.
    """
    if name in METRICS:
        return METRICS[name]
    for pattern, text in METRICS.items():
        if "*" in pattern and re.fullmatch(pattern.replace("*", "[a-z0-9_]+"), name):
            return text
    near = difflib.get_close_matches(name, METRICS, n=1)
    nearest = f"; the nearest is '{near[0]}'" if near else ""
    raise KeyError(
        f"'{name}' is no metric{nearest}. Add a line to METRICS in spade_jax/metric_names.py"
    )


def markdown() -> str:
    """Write METRICS as a table for people."""
    rows = [f"| `{name}` | {text} |" for name, text in METRICS.items()]
    return "\n".join(["| name | meaning |", "|---|---|", *rows]) + "\n"


def slug(words: str) -> str:
    """Spell a skill or a reason as one part of a metric name: lower case, `_` between words."""
    return re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")


def interval(successes: float, n: int) -> Interval:
    """Give a share and its 95% Wilson interval.

    Args:
      successes: how many of the n succeeded, between 0 and n.
      n: how many were tried; with 0 the interval is [0, 1] and the mean nan.
    Source: Wilson (1927), Probable inference, the law of succession, and statistical inference.
    """
    if n < 0 or not 0 <= successes <= n:
        raise ValueError(f"interval({successes}, {n}): successes must lie in [0, n].")
    if n == 0:
        return Interval(mean=math.nan, low=0.0, high=1.0)
    share, z2 = successes / n, _Z95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    spread = _Z95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return Interval(mean=share, low=max(0.0, centre - spread), high=min(1.0, centre + spread))


def progress_line(
    iteration: int, iterations: int, elapsed_seconds: float, metrics: Mapping[str, Any]
) -> str:
    """Say in one line how an iteration went; a part whose metric is absent is left out.

    Args:
      iteration: number of this one, from 0; shown from 1.
      iterations: how many the run has.
      elapsed_seconds: since the run began.
      metrics: the iteration's metrics.
    """
    minutes, seconds = divmod(int(elapsed_seconds), 60)
    parts = [f"{iteration + 1:>{len(str(iterations))}}/{iterations}  {minutes:d}:{seconds:02d}"]
    drafts = ""
    if "count/drafts" in metrics and "count/accepted" in metrics:
        drafts = f" ({metrics['count/accepted']}/{metrics['count/drafts']})"
    parts += _percent("valid", metrics, "env/validity", drafts)
    parts += _percent("win", metrics, "rollout/win_rate")
    parts += _percent("hinted", metrics, "rollout/hinted_win_rate")
    if metrics.get("rollout/too_long"):
        parts += _percent("too long", metrics, "rollout/too_long", " (see rollout.context_tokens)")
    if "env/regret" in metrics:
        error = f" ± {metrics['env/regret_se']:.3f}" if "env/regret_se" in metrics else ""
        parts.append(f"regret {metrics['env/regret']:+.3f}{error}")
    parts += _percent("learnable", metrics, "env/learnable")
    for name, word in (("eval/known", "known"), ("eval/held_out", "held-out")):
        width = metrics.get(f"{name}_half_width")
        parts += _percent(word, metrics, name, "" if width is None else f" ± {100 * width:.1f}")
    stages = [name for name in metrics if name.startswith("time/") and name != "time/iteration"]
    if stages:
        spent = " ".join(f"{name.removeprefix('time/')} {metrics[name]:.1f}" for name in stages)
        parts.append(f"[{spent} s]")
    return "  ".join(parts)


def _percent(word: str, metrics: Mapping[str, Any], name: str, rest: str = "") -> list[str]:
    if metrics.get(name) is None:
        return []
    return [f"{word} {100 * metrics[name]:.0f}%{rest}"]


def _number(name: str, value: Any) -> float | int | None:
    meaning(name)
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0:
        value = value.item()
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    raise TypeError(
        f"metric '{name}' is {value!r}, a {type(value).__name__}; give a Python or NumPy number "
        "(bring device arrays to the host first)."
    )
