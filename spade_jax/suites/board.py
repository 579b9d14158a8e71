"""One table over checkpoints: rates with intervals, paired changes, and the checkpoint to take.

In: the summaries of scored checkpoints. Out: Markdown and CSV. The checkpoint is chosen by a
validation suite; the numbers of test suites play no part in the choice. Scores that were made with
other settings (temperature, tokens, questions) are marked, and neither compared nor chosen.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence

import numpy as np

from spade_jax.suites import suite

_Z95 = 1.959964
Summaries = Mapping[int, Mapping[str, Mapping]]  # step -> suite -> Score as a dict


def markdown(summaries: Summaries, validation: str) -> str:
    """Write the table, the changes and the choice."""
    names = _names(summaries)
    odd = {name: differing(summaries, name) for name in names}
    head = ["step", *(f"{name} ({_role(summaries, name)})" for name in names)]
    lines = [_row(head), _row(["---"] * len(head))]
    for step in sorted(summaries):
        cells = [_cell(summaries[step].get(name)) for name in names]
        marked = [step in odd[name] for name in names]
        cells = [f"{cell} *" if mark else cell for cell, mark in zip(cells, marked, strict=True)]
        lines.append(_row([str(step), *cells]))
    lines += ["", "Share solved with its 95% interval; faults say nothing and are left out.", ""]
    for name in names:
        for step, keys in odd[name].items():
            lines.append(f"\\* {name} at step {step} was scored with another {', '.join(keys)}.")
    lines += [""] if any(odd.values()) else []
    changes = [change for name in names for change in _changes(summaries, name)]
    if changes:
        titles = ["suite", "from", "to", "change, points", "95% half width"]
        lines += [_row(titles), _row(["---"] * len(titles)), *map(_row, changes)]
        lines += ["", "Changes are paired: over questions (or tasks) scored both times.", ""]
    lines.append(choice(summaries, validation))
    return "\n".join(lines) + "\n"


def as_csv(summaries: Summaries) -> str:
    """Write one row per checkpoint and suite; `differs` names the settings that are not those of
    the suite's newest score."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    titles = ("rate", "low", "high", "solved", "questions", "faults")
    table.writerow(["step", "suite", "role", *titles, "pass_at", "differs"])
    odd = {name: differing(summaries, name) for name in _names(summaries)}
    for step in sorted(summaries):
        for name, score in sorted(summaries[step].items()):
            passed = " ".join(f"{k}:{rate:.6g}" for k, rate in score["pass_at"].items())
            marked = " ".join(odd[name].get(step, ()))
            table.writerow([step, name, score["role"], *(score[t] for t in titles), passed, marked])
    return out.getvalue()


def check_validation(suites: Sequence[suite.Suite], validation: str) -> None:
    """Refuse to choose by a test suite.

    Raises:
      ValueError: the suite is not among those scored, or is a test suite.
    """
    roles = {one.name: one.role for one in suites}
    if validation and validation not in roles:
        raise ValueError(
            f"--validation={validation}: not among the suites scored, {sorted(roles)}. Add it "
            "with --suite."
        )
    if validation and roles[validation] == "test":
        raise ValueError(
            f"--validation={validation} is a test suite: a checkpoint that is chosen by it has no "
            "test left. Choose by a validation suite, such as `known`."
        )


def differing(summaries: Summaries, name: str) -> dict[int, list[str]]:
    """Find the steps at which a suite was scored with other settings than at the newest step.

    Returns:
      step -> names of the settings that differ; `settings` where a score does not tell its own.
    """
    told = {
        step: scores[name].get("settings") for step, scores in summaries.items() if name in scores
    }
    newest = told[max(told)] if told else None
    found = {}
    for step, given in sorted(told.items()):
        if bool(given) != bool(newest):
            found[step] = ["settings"]
        elif given != newest:
            found[step] = sorted(
                key for key in {*given, *newest} if given.get(key) != newest.get(key)
            )
    return found


def best(summaries: Summaries, validation: str) -> int | None:
    """Give the step with the highest validation rate, the earliest of equal ones; only steps scored
    with the settings of the newest take part."""
    odd = differing(summaries, validation)
    rates = {
        step: score[validation]["rate"]
        for step, score in summaries.items()
        if validation in score and step not in odd and score[validation]["rate"] is not None
    }
    return min(rates, key=lambda step: (-rates[step], step)) if rates else None


def choice(summaries: Summaries, validation: str) -> str:
    """Say which checkpoint is best, and by what."""
    step = best(summaries, validation) if validation else None
    if step is None:
        return "No checkpoint is chosen: that needs a validation suite (--validation)."
    odd = differing(summaries, validation)
    aside = f" Steps {sorted(odd)} have other settings and were left aside." if odd else ""
    return (
        f"Best checkpoint: {step}, chosen by {validation} (validation). Test suites played no part "
        f"in the choice.{aside}"
    )


def paired(before: Mapping, after: Mapping) -> tuple[float, float, int]:
    """Compare two scores of one suite.

    Args:
      before, after: `Score` as dicts, of the same suite.
    Returns:
      mean difference, 1.96 standard errors of it (infinite below two pairs), number of pairs.
      Pairs are tasks where questions are repeated, and questions otherwise. A task that was not
      tried as often both times has no pair.
    """
    gaps: list[float] = []
    for task in before["answers"].keys() & after["answers"].keys():
        if len(before["answers"][task]) != len(after["answers"][task]):
            continue
        pairs = [
            (int(a), int(b))
            for a, b in zip(before["answers"][task], after["answers"][task], strict=True)
            if "x" not in (a, b)
        ]
        found = [b - a for a, b in pairs]
        if before["repeated"]:
            gaps += [float(np.mean(found))] if found else []
        else:
            gaps += found
    if len(gaps) < 2:
        return float(np.sum(gaps)), math.inf, len(gaps)
    spread = float(np.std(gaps, ddof=1)) / math.sqrt(len(gaps))
    return float(np.mean(gaps)), _Z95 * spread, len(gaps)


def _changes(summaries: Summaries, name: str) -> list[list[str]]:
    """Compare each checkpoint with the one before it, and the last with the first."""
    odd = differing(summaries, name)
    steps = [step for step in sorted(summaries) if name in summaries[step] and step not in odd]
    compared = list(zip(steps, steps[1:], strict=False))
    if len(steps) > 2:
        compared.append((steps[0], steps[-1]))
    rows = []
    for first, second in compared:
        gap, half, _ = paired(summaries[first][name], summaries[second][name])
        rows.append([name, str(first), str(second), f"{100 * gap:+.1f}", f"{100 * half:.1f}"])
    return rows


def _names(summaries: Summaries) -> list[str]:
    return sorted({name for scores in summaries.values() for name in scores})


def _role(summaries: Summaries, name: str) -> str:
    return next(scores[name]["role"] for scores in summaries.values() if name in scores)


def _cell(score: Mapping | None) -> str:
    if score is None or not score["questions"]:
        return ""
    percent = [100 * score[key] for key in ("rate", "low", "high")]
    text = f"{percent[0]:.1f}% [{percent[1]:.1f}, {percent[2]:.1f}]"
    for k, rate in score["pass_at"].items():
        text += f" pass@{k} {100 * rate:.1f}%" if k != "1" else ""
    return text


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
