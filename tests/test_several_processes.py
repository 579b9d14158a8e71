"""A whole self-play run over several processes equals that of one process, to rounding."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from spade_jax import hosts

ROOT = pathlib.Path(__file__).parent.parent
CONFIG = """
from experiments import quickstart


def get_config(devices):
    run = quickstart.get_config()
    run.iterations = 2
    run.mesh.fsdp = int(devices)
    run.batch.rows_multiple = int(devices) * run.batch.rows_multiple
    run.design.drafts = 5
    run.rollout.environments = 5
    run.rollout.seeds = 1
    run.rollout.plays = 3
    run.rollout.hinted_plays = 2
    run.evaluate.instances = 1
    run.evaluate.held_out_instances = 1
    run.hosts.silence_seconds = 20.0
    run.sandbox.boxes = 1
    return run
"""


@pytest.fixture
def start(tmp_path):
    """Start the processes of one run; what still lives at the end is killed."""
    config, children = tmp_path / "tiny.py", []
    config.write_text(CONFIG)
    tier = [] if shutil.which("runsc") else ["--config.sandbox.tier=subprocess"]

    def begin(workdir, processes, devices):
        with socket.socket() as listener:
            listener.bind(("localhost", 0))
            port = listener.getsockname()[1]
        flags = f"--xla_force_host_platform_device_count={devices // processes}"
        made = []
        for index in range(processes):
            command = [sys.executable, "-m", "launch.train", f"--config={config}:{devices}"]
            command += [f"--workdir={workdir}", *tier]
            if processes > 1:
                command += [f"--coordinator=localhost:{port}", f"--processes={processes}"]
                command += [f"--process={index}"]
            log = (tmp_path / f"{workdir.name}.{index}.log").open("w+")
            made.append(
                subprocess.Popen(
                    command, cwd=ROOT, env=os.environ | {"XLA_FLAGS": flags},
                    stdout=log, stderr=subprocess.STDOUT,
                )
            )  # fmt: skip
            made[-1].log = pathlib.Path(log.name)
        children.extend(made)
        return made

    yield begin
    for child in children:
        if child.poll() is None:
            child.kill()
        child.wait()


def metrics(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    own = ("time/", "count/compiles")
    return [{k: v for k, v in row.items() if not k.startswith(own)} for row in rows]


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_share_the_work_and_make_the_same_run(start, tmp_path, processes):
    alone, together = tmp_path / "alone", tmp_path / "together"
    for workdir, count in ((alone, 1), (together, processes)):
        for child in start(workdir, count, processes):
            assert child.wait(timeout=600) == 0, child.log.read_text()[-3000:]
    expected, found = metrics(alone), metrics(together)
    assert [row.keys() for row in found] == [row.keys() for row in expected]
    for row, other in zip(found, expected, strict=True):
        for name, value in row.items():
            assert value == pytest.approx(other[name], rel=2e-3, abs=1e-4, nan_ok=True), name
    assert metrics(together / hosts.FOLDER / "1") == found  # every process knows the same
    results = [json.loads((run / "results.json").read_text()) for run in (alone, together)]
    answers = [[e["suites"]["known"]["answers"] for e in r["evaluations"]] for r in results]
    assert answers[0] == answers[1]
    with np.load(alone / "final.npz") as a, np.load(together / "final.npz") as b:
        for name in a.files:
            if a[name].dtype.kind == "f":
                np.testing.assert_allclose(a[name], b[name], rtol=1e-3, atol=1e-4)
            else:
                assert np.array_equal(a[name], b[name]), name


def test_a_killed_process_ends_the_others_and_the_same_command_continues(start, tmp_path):
    workdir = tmp_path / "killed"
    children = start(workdir, 2, 2)
    deadline = time.monotonic() + 300
    while not (workdir / "checkpoints" / "0").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    children[1].send_signal(signal.SIGKILL)
    assert children[0].wait(timeout=200) == hosts.MISSING, children[0].log.read_text()[-3000:]
    assert f"process 1 (pid {children[1].pid} on " in children[0].log.read_text()
    for child in start(workdir, 2, 2):
        assert child.wait(timeout=600) == 0, child.log.read_text()[-3000:]
    assert [row["iteration"] for row in metrics(workdir)] == [0, 1]
