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
    seconds = _run(whole, None)
    print(f"uninterrupted: {seconds:.0f} s", flush=True)
    rng = random.Random(options.seed)
    for kill in range(options.kills):
        moment = rng.uniform(0.1, seconds / 4)
        _run(killed, moment)
        print(f"kill {kill + 1} after {moment:5.1f} s: {len(_metrics(killed))} lines", flush=True)
    _run(killed, None)
    differences = _differences(whole, killed)
    print("\n".join(differences) or "equal: parameters, results and metrics, bit for bit")
    return bool(differences)


def _run(workdir: pathlib.Path, kill_after: float | None) -> float:
    """Run to the end, or until the moment of the kill; give the seconds it took."""
    command = [sys.executable, "-m", "launch.train", "--config=experiments/quickstart.py"]
    command += [f"--workdir={workdir}", *(f"--config.{knob}" for knob in OVERRIDES)]
    began = time.monotonic()
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        _, errors = child.communicate(timeout=kill_after)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    else:
        if child.returncode:
            raise RuntimeError(f"The run in {workdir} failed:\n{errors.decode()}")
    return time.monotonic() - began


def _metrics(workdir: pathlib.Path) -> list[dict]:
    """Read the whole lines, without what belongs to a process: seconds and compiled shapes."""
    path = workdir / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    own = ("time/", "count/compiles")
    return [{k: v for k, v in row.items() if not k.startswith(own)} for row in rows]


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
