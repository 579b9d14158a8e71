"""A run that is killed, preempted and whose newest checkpoint is damaged equals one that was not.

Bit for bit: parameters, optimiser, pool, metrics. Between checkpoints (every fifth iteration) only
SIGTERM saves.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np

from spade_jax import preemption

ROOT = pathlib.Path(__file__).parent.parent
CONFIG = """
from experiments import quickstart


def get_config():
    run = quickstart.get_config()
    run.iterations = 4
    run.design.drafts = 6
    run.design.every = 2
    run.rollout.environments = 6
    run.rollout.seeds = 1
    run.rollout.plays = 4
    run.rollout.hinted_plays = 2
    run.evaluate.instances = 1
    run.evaluate.held_out_instances = 1
    run.corpus = None
    return run
"""


def _command(config, workdir):
    tier = [] if shutil.which("runsc") else ["--config.sandbox.tier=subprocess"]
    return [
        sys.executable, "-m", "launch.train", f"--config={config}", f"--workdir={workdir}", *tier,
    ]  # fmt: skip


def _environment():
    """The trainer's own devices: not the eight that the tests simulate."""
    return {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}


def _finish(config, workdir):
    done = subprocess.run(
        _command(config, workdir), cwd=ROOT, env=_environment(), capture_output=True, timeout=600
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return done.stdout.decode()


def _signal_when(config, workdir, number, condition):
    """Start the run and send a signal as soon as `condition` holds, or let it end; its code."""
    child = subprocess.Popen(
        _command(config, workdir), cwd=ROOT, env=_environment(),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 300
    while child.poll() is None and not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(number)
    return child.wait(timeout=120)


def _steps(workdir):
    return sorted(int(p.name) for p in (workdir / "checkpoints").iterdir() if p.name.isdigit())


def _damage(folder):
    """Cut every file of a checkpoint to its half."""
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _lines(workdir):
    path = workdir / "metrics.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def _timeless(line):
    """Drop what belongs to the process: seconds, and shapes that it compiled."""
    own = ("time/", "count/compiles")
    return {name: value for name, value in line.items() if not name.startswith(own)}


def test_a_killed_run_equals_an_uninterrupted_one(tmp_path):
    config = tmp_path / "tiny.py"
    config.write_text(CONFIG)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    _finish(config, whole)
    begun = killed / "checkpoints" / "0"
    _signal_when(config, killed, signal.SIGKILL, begun.exists)
    _signal_when(config, killed, signal.SIGKILL, lambda: len(_lines(killed)) >= 1)
    code = _signal_when(config, killed, signal.SIGTERM, lambda: len(_lines(killed)) >= 2)
    assert code == preemption.EXIT_CODE and _steps(killed)[-1] >= 2
    _damage(killed / "checkpoints" / str(_steps(killed)[-1]))
    assert "FELL BACK to step 0" in _finish(config, killed)
    expected, found = _lines(whole), _lines(killed)
    assert [line["iteration"] for line in found] == [0, 1, 2, 3]
    assert [_timeless(line) for line in found] == [_timeless(line) for line in expected]
    with np.load(whole / "final.npz") as a, np.load(killed / "final.npz") as b:
        for name in a.files:
            assert np.array_equal(a[name], b[name]), name
    results = [json.loads((run / "results.json").read_text()) for run in (whole, killed)]
    for result in results:
        for evaluation in result["evaluations"]:
            for suite in evaluation["suites"].values():
                suite.pop("seconds")
    assert results[0] == results[1]
