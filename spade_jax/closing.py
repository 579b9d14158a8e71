"""The closing table: what a run did, with intervals, and nothing more than that.

In: the progress at the end. Out: `results.json` as values, and a table as text.
"""

from __future__ import annotations

from typing import Any

from etils import epath

from spade_jax import evaluate, loop, metrics, settings


def results(
    progress: loop.Progress, config: settings.RunConfig, folder: epath.Path
) -> dict[str, Any]:
    """Gather what the table shows, as JSON-able values."""
    lines = metrics.read_metrics(folder / "metrics.jsonl")
    return {
        "mode": config.mode,
        "seed": config.seed,
        "iterations": progress.iteration,
        "supervised_steps": _supervised_steps(config),
        "tier": config.sandbox.tier,
        "totals": progress.totals,
        "evaluations": progress.evaluations,
        "learnable": [line.get("env/learnable") for line in lines],
        "validity": [line.get("env/validity") for line in lines],
        "regret": [[line.get("env/raw_regret"), line.get("env/regret_se")] for line in lines],
    }


def table(values: dict[str, Any], folder: epath.Path) -> str:
    """Write the table of a finished run."""
    totals = values["totals"]
    rows = [("iterations", f"{values['iterations']} ({values['mode']}, seed {values['seed']})")]
    if values["iterations"]:  # a supervised run counts none of these
        rows.append(("programs executed", f"{int(totals.get('programs', 0))} in {values['tier']}"))
        rows.append(("episodes played", f"{int(totals.get('episodes', 0))}"))
        rows.append(("learnable share, first -> last quarter", _quarters(values["learnable"])))
    if totals.get("drafts"):
        rows.append(("drafts", _drafts(totals)))
        rows.append(("validity, first -> last quarter", _quarters(values["validity"])))
    regret = _regret(values["regret"])
    if regret:
        rows.append(("regret (hinted - plain return)", regret))
    withheld = _reasons(totals, "hint_refused_")
    if withheld:
        rows.append(("groups without hinted plays", withheld))
    for suite in evaluate.SUITES:
        rows += _suite(suite, values["evaluations"], values["supervised_steps"])
    width = max(len(name) for name, _ in rows)
    lines = ["", "What this run did"] + [f"  {name:<{width}}  {text}" for name, text in rows]
    lines += [
        "",
        f"  files: {folder}/metrics.jsonl, tensorboard/, samples/ (what both roles wrote), "
        "checkpoints/, results.json",
    ]
    return "\n".join(lines)


def _supervised_steps(config: settings.RunConfig) -> int:
    """Supervised steps that this run took before its first evaluation."""
    if config.mode == "supervised" or config.warmstart.from_scratch or not config.policy.weights:
        return config.warmstart.supervised.steps
    return 0


def _drafts(totals: dict[str, float]) -> str:
    refused = _reasons(totals, "refused_")
    lost = int(totals.get("unchecked", 0))
    return (
        f"{int(totals['drafts'])} written, {int(totals.get('accepted', 0))} accepted"
        + (f", {lost} not judged (the sandbox failed)" if lost else "")
        + (f"; refused: {refused}" if refused else "")
    )


def _reasons(totals: dict[str, float], prefix: str) -> str:
    """List the totals of a prefix, the largest first."""
    found = {
        key.removeprefix(prefix): int(n) for key, n in totals.items() if key.startswith(prefix)
    }
    return ", ".join(f"{name} {n}" for name, n in sorted(found.items(), key=lambda x: -x[1]))


def _quarters(series: list) -> str:
    known = [value for value in series if value is not None]
    if not known:
        return "none"
    size = max(len(known) // 4, 1)
    first, last = known[:size], known[-size:]
    return f"{sum(first) / len(first):.2f} -> {sum(last) / len(last):.2f}"


def _regret(pairs: list) -> str:
    known = [(gap, error) for gap, error in pairs if gap is not None and error is not None]
    if not known:
        return ""
    mean = sum(gap for gap, _ in known) / len(known)
    error = sum(e**2 for _, e in known) ** 0.5 / len(known)
    return f"{mean:+.3f} ± {1.96 * error:.3f}"


def _when(iteration: int, supervised_steps: int) -> str:
    """Say after what training an evaluation was made."""
    if iteration:
        return f"after {iteration} iterations"
    return f"after {supervised_steps} supervised steps" if supervised_steps else "before"


def _suite(suite: str, evaluations: list[dict], supervised_steps: int) -> list[tuple[str, str]]:
    scored = [e for e in evaluations if suite in e["suites"]]
    if not scored:
        return []
    names = {"known": "new instances, known families", "held_out": "held-out families"}
    rows = []
    for record in (scored[0], scored[-1])[: len(scored)]:
        label = _when(record["iteration"], supervised_steps)
        score = record["suites"][suite]
        rate = score["solved"] / max(score["questions"], 1)
        half = (score["high"] - score["low"]) / 2
        rows.append(
            (
                f"{names[suite]}, {label}",
                f"{100 * rate:.1f}% ± {100 * half:.1f} ({score['questions']} questions)",
            )
        )
    if len(scored) > 1:
        gap, half = evaluate.paired(
            scored[0]["suites"][suite]["answers"], scored[-1]["suites"][suite]["answers"]
        )
        rows.append((f"{names[suite]}, change", f"{100 * gap:+.1f} ± {100 * half:.1f} points"))
    return rows
