"""Go on with a run on another mesh and compare it with one whose mesh stayed.

Shows:     a run that began with fsdp=4 goes on with fsdp=2, tensor=2, says so, and ends with the
           same metrics and parameters up to rounding.
Command:   python -m experiments.mesh_change_study --folder=runs/mesh_change
Hardware:  2 CPU cores (4 simulated devices), gVisor, about 10 minutes.
Result:    experiments/README.md.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
OVERRIDES = (  # of experiments/quickstart.py
    *("batch.rows_multiple=16", "design.drafts=6", "rollout.environments=6", "rollout.seeds=1"),
    *("rollout.plays=4", "rollout.hinted_plays=2", "evaluate.instances=1"),
    *("evaluate.held_out_instances=1", "checkpoint.every=1"),
)
OLD, NEW = ("mesh.fsdp=4",), ("mesh.fsdp=2", "mesh.tensor=2")
SAID = "mesh.fsdp, mesh.tensor changed since the last start"


def main() -> int:
    """Run the study; the exit code is 0 if the numbers are equal to rounding."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    folder = parser.parse_args().folder
    same, other = folder / "same", folder / "other"
    _run(same, 2, OLD)
    shutil.copytree(same, other)
    said = _run(same, 4, OLD), _run(other, 4, NEW)
    print("\n".join(line for line in said[1].splitlines() if SAID in line))
    if SAID in said[0] or SAID not in said[1]:
        print("the change was not told, or told where there was none")
        return 1
    rows, expected = _metrics(other), _metrics(same)
    if [row.keys() for row in rows] != [row.keys() for row in expected]:
        print("iterations or names of metrics differ")
        return 1
    pairs = [(n, a[n], b[n]) for a, b in zip(rows, expected, strict=True) for n in a]
    print("metrics:    largest difference", max((_apart(a, b), name) for name, a, b in pairs))
    with np.load(same / "final.npz") as a, np.load(other / "final.npz") as b:
        floats = [n for n in a.files if a[n].dtype.kind == "f"]
        apart = max((float(np.abs(a[n] - b[n]).max()), n) for n in floats)
        print("parameters: largest difference", apart)
    return int(apart[0] > 1e-3)


def _apart(a, b) -> float:
    """Give the difference, relative where the values are larger than 1; 0 where both are NaN."""
    if not isinstance(a, (int, float)) or (a != a and b != b):
        return 0.0
    return abs(a - b) / max(1.0, abs(b))


def _run(workdir: pathlib.Path, iterations: int, mesh: tuple[str, ...]) -> str:
    """Run or go on; gives what was printed."""
    command = ["env", "XLA_FLAGS=--xla_force_host_platform_device_count=4"]
    command += [sys.executable, "-m", "launch.train", "--config=experiments/quickstart.py"]
    knobs = (*OVERRIDES, *mesh, f"iterations={iterations}")
    command += [f"--workdir={workdir}", *(f"--config.{knob}" for knob in knobs)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"The run in {workdir} failed:\n{done.stderr}")
    return done.stdout


def _metrics(workdir: pathlib.Path) -> list[dict]:
    """Drop what belongs to a process: seconds and compiled shapes."""
    own = ("time/", "count/compiles")
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith(own)} for row in rows]


if __name__ == "__main__":
    sys.exit(main())
