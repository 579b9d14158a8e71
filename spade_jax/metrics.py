"""Metrics of a run: one JSON line per iteration, TensorBoard, readable samples, a progress line.

In the work directory stand `metrics.jsonl` (each iteration once, rising), `tensorboard/` and
`samples/` (one text file per iteration). `METRICS` says what every name means; a new metric is
one line there. `*` in a name stands for one lower-case word, e.g. a skill or a refusal reason.
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

from spade_jax import files

METRICS = {
    # Play.
    "rollout/win_rate": "share of plain plays with a return above 0 (an evaluation asks for 1)",
    "rollout/hinted_win_rate": "the same, hinted plays",
    "rollout/mean_return": "mean return of plain plays, in [-1, 1]",
    "rollout/hinted_mean_return": "the same, hinted plays",
    "rollout/turns": "mean turns of an episode",
    "rollout/reply_tokens": "mean tokens of an agent reply",
    "rollout/malformed_calls": "share of agent replies whose tool call cannot be read",
    "rollout/truncated": "share of episodes with a reply that the length limit cut",
    "rollout/zero_spread": "share of (environment, seed) groups whose valid plays return the same",
    "rollout/environment_faults": "share of episodes that the environment broke",
    "rollout/infra_faults": "share of episodes lost to a fault of ours",
    "rollout/reward_std": "standard deviation of the returns of plain plays",
    "rollout/all_lost": "share of (environment, seed) groups whose valid plays all fail",
    "rollout/all_won": "the same, all win",
    "rollout/reply_tokens_max": "tokens of the longest agent reply",
    "rollout/blind_wins": "share of wins whose actions win on every seed of their environment",
    "rollout/too_long": "share of episodes whose first prompt left no room to reply",
    # Environments and their designer.
    "env/validity": "share of the drafts judged that passed every check",
    "env/screened_out": "share of sound drafts that the screen by the policy refused",
    "env/regret": "mean estimated regret of the environments drawn, in units of return",
    "env/regret_se": "standard error of env/regret",
    "env/raw_regret": "the same mean before shrinkage",
    "env/learnable": "share of environments drawn with a win rate in [0.2, 0.8]",
    "env/easy": "share of environments drawn with a win rate above 0.8",
    "env/hard": "the same, below 0.2",
    "env/too_easy": "of the newest generation drawn, share with a win rate above 0.9",
    "env/unwinnable": "of the newest generation drawn, share won neither with nor without hint",
    "env/floored_regret": "share of environments with a pair whose estimated regret is 0 or less",
    "env/penalty": "mean graded penalty of the drafts credited: novelty, faults, leaks",
    "env/vendi": "Vendi score of a generation's syntax trees over their number, in (0, 1]",
    "env/vendi_words": "the same of their words",
    "env/no_programs": "share of the drafts judged that are no program",
    "env/faulty_drafts": "share of the drafts judged that crash, hang or exhaust a limit",
    "env/truncated_drafts": "share of drafts that the length limit cut",
    "env/hint_leaks": "share of hints that tell the answer",
    "env/designer_reward": "mean raw reward of the drafts credited",
    "env/similarity": "mean similarity of accepted drafts to their nearest neighbour, in [0, 1]",
    "env/diversity": "distinct digests among accepted drafts, as a share",
    "env/class_names": "distinct class names among accepted drafts, as a share",
    "env/skill_entropy": "entropy of skills in the pool over its maximum, in [0, 1]",
    "env/hints_kept": "share of hints that passed the gate",
    "env/earned_difficulty": "of the failures in plain plays, the share that the hint removes",
    "env/pool_size": "environments alive in the pool",
    "env/reply_tokens": "mean tokens of a draft",
    "env/skill_*/win_rate": "win rate of plain plays in this skill",
    "env/skill_*/regret": "mean regret in this skill",
    "env/skill_*/designer_reward": "mean raw reward of the drafts credited in this skill",
    "env/skill_*/quota": "share of the next drafts by learning progress; see design.skills",
    "env/skill_*/validity": "share of the drafts judged that were accepted in this skill",
    # The policy in both roles.
    "actor/agent_entropy": "mean entropy of the distribution at each trained agent token, nats",
    "actor/designer_entropy": "the same, designer; absent where none of its tokens is trained",
    "actor/agent_advantage_rms": "root mean square of the agent's advantages over its tokens",
    "actor/designer_advantage_rms": "the same, designer",
    # The update.
    "train/loss": "loss that was minimised",
    "train/policy_loss": "policy-gradient part of it",
    "train/kl": "k3 estimate of the divergence to the starting policy, nats a token; absent "
    "without a KL term",
    "train/step_kl": "k3 estimate of the divergence to the policy that wrote the rows",
    "train/clip_share": "share of tokens whose ratio was clipped",
    "train/importance": "mean truncated importance weight",
    "train/logp_gap_mean": "mean |logp of trainer - logp of sampler| over trained tokens, nats",
    "train/logp_gap_max": "largest such gap",
    "train/gradient_norm": "global norm of the gradient before clipping",
    "train/update_norm": "global norm of the parameter update",
    "train/parameter_norm": "global norm of the parameters",
    "train/learning_rate": "step size of this update",
    "train/skipped_steps": "optimiser steps left out in this iteration: gradient not finite",
    "train/padding": "share of the batch's tokens that carry no weight for being padding",
    # Benchmarks.
    "eval/known": "solve rate on new instances of training families",
    "eval/known_half_width": "half the 95% interval of eval/known",
    "eval/held_out": "solve rate on families kept out of training",
    "eval/held_out_half_width": "half the 95% interval of eval/held_out",
    "eval/skill_*/solve_rate": "solve rate of held-out families in this skill",
    # Safeguards; see safeguards.py.
    "health/state": "0 healthy, 1 warning, 2 collapsed",
    "health/cause_*": "observations in a row in which this cause holds",
    "health/answer_*": "1 where this iteration did what the safeguards asked for",
    # Seconds per stage, wall clock.
    "time/iteration": "seconds of the whole iteration",
    "time/*": "seconds in this stage",
    # Counts of this iteration; `total_` names count since the run began.
    "count/drafts": "drafts written",
    "count/accepted": "drafts that became environments",
    "count/refused_*": "drafts refused for this reason",
    "count/unchecked": "drafts that nobody could judge, because the sandbox failed",
    "count/repaired": "environments from mended drafts, which are played and not trained",
    "count/hint_refused_*": "groups whose hinted plays the gate of hints left out, by reason",
    "count/policy_hint_refused_*": "hints of the policy that the gate refused, by reason",
    "count/screen_replies": "replies of the policy that screened drafts; seconds: time/screen",
    "count/episodes": "episodes played to an end",
    "count/programs": "processes that executed a program in the sandbox",
    "count/generated": "sequences generated",
    "count/trained": "sequences trained on",
    "count/refused": "sequences of refused drafts that were trained on",
    "count/waiting": "sequences of drafts that wait for their credit",
    "count/masked_*": "sequences generated and not trained, by reason",
    "count/tokens": "tokens trained on",
    "count/compiles": "shapes that the sampler met for the first time in this process",
    "count/total_episodes": "episodes since the run began",
    "count/total_programs": "sandbox processes since the run began",
}
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
    raise KeyError(f"'{name}' is no metric{nearest}. Add a line to METRICS in spade_jax/metrics.py")


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
