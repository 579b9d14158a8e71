"""Kill a run at random moments and compare it with one that nobody killed.

Shows:     after any number of SIGKILLs the same command ends with the same parameters, results
           and metrics, each iteration once, as a run that was left alone.
Command:   python -m experiments.kill_study --folder=runs/kill_study [--kills=10] [--seed=0]
Hardware:  2 CPU cores, gVisor, 15 minutes.
Result:    experiments/README.md.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
OVERRIDES = (  # of experiments/quickstart.py: short iterations, a generation lives for two
    *("iterations=24", "checkpoint.every=1"),
    *("design.drafts=6", "design.every=2", "rollout.environments=6", "rollout.seeds=1"),
    *("rollout.plays=4", "rollout.hinted_plays=2"),
    *("evaluate.instances=1", "evaluate.held_out_instances=1", "evaluate.every=8"),
)


def main() -> int:
    """Run the study; the exit code is 0 if both runs are equal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args()
    whole, killed = options.folder / "whole", options.folder / "killed"
    _run(whole, None)
    rows = _rows(whole)
    seconds = sum(row["time/iteration"] for row in rows) / len(rows)
    print(f"uninterrupted: {len(rows)} iterations of {seconds:.1f} s", flush=True)
    rng = random.Random(options.seed)
    for moment in sorted(rng.uniform(0, len(rows) - 1) for _ in range(options.kills)):
        delay = seconds * (moment % 1)
        _run(killed, (int(moment), delay))
        found = len(_rows(killed))
        print(f"killed {delay:4.1f} s after line {int(moment)}: {found} lines", flush=True)
    _run(killed, None)
    differences = _differences(whole, killed)
    print("\n".join(differences) or "equal: parameters, results and metrics, bit for bit")
    return bool(differences)


def _run(workdir: pathlib.Path, kill_at: tuple[int, float] | None) -> None:
    """Run to the end, or kill it that many seconds after so many lines of metrics."""
    command = [sys.executable, "-m", "launch.train", "--config=experiments/quickstart.py"]
    command += [f"--workdir={workdir}", *(f"--config.{knob}" for knob in OVERRIDES)]
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=errors)
        if kill_at is not None:
            while child.poll() is None and len(_rows(workdir)) < kill_at[0]:
                time.sleep(0.02)
            time.sleep(kill_at[1])
            child.send_signal(signal.SIGKILL)
        if child.wait() and kill_at is None:
            errors.seek(0)
            raise RuntimeError(f"The run in {workdir} failed:\n{errors.read()}")


def _rows(workdir: pathlib.Path) -> list[dict]:
    """Read the whole lines of the metrics."""
    path = workdir / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _metrics(workdir: pathlib.Path) -> list[dict]:
    """Drop what belongs to a process: seconds and compiled shapes."""
    own = ("time/", "count/compiles")
    return [{k: v for k, v in row.items() if not k.startswith(own)} for row in _rows(workdir)]


def _results(workdir: pathlib.Path) -> dict:
    results = json.loads((workdir / "results.json").read_text())
    for evaluation in results["evaluations"]:
        for suite in evaluation["suites"].values():
            suite.pop("seconds")
    return results


def _differences(whole: pathlib.Path, killed: pathlib.Path) -> list[str]:
    """Name what differs between the two finished runs."""
    found = []
    expected, metrics = _metrics(whole), _metrics(killed)
    if [row["iteration"] for row in metrics] != [row["iteration"] for row in expected]:
        found.append(f"iterations: {[row['iteration'] for row in metrics]}")
    elif metrics != expected:
        names = {k for a, b in zip(expected, metrics, strict=True) for k in a if a[k] != b.get(k)}
        found.append(f"metrics: {sorted(names)}")
    if _results(whole) != _results(killed):
        found.append("results.json")
    with np.load(whole / "final.npz") as a, np.load(killed / "final.npz") as b:
        found += [f"parameter {name}" for name in a.files if not np.array_equal(a[name], b[name])]
    return found


if __name__ == "__main__":
    sys.exit(main())
