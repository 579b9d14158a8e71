"""A whole self-play run over several processes equals that of one process, to rounding."""

import fcntl
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
SEEDS = ROOT / "experiments" / "seed_environments" / "compact"
CONFIG = """
from experiments import quickstart


def get_config():
    run = quickstart.get_config()
    run.iterations = 2
    run.mesh.fsdp = 4
    run.batch.rows_multiple *= 4
    run.design.drafts = 5
    run.rollout.environments = 3
    run.rollout.seeds = 1
    run.rollout.plays = 3
    run.rollout.hinted_plays = 2
    run.evaluate.instances = 1
    run.evaluate.held_out_instances = 1
    run.hosts.silence_seconds = 20.0
    run.sandbox.boxes = 1
    run.seed_environments = {programs!r}
    return run
"""
PROGRAMS = (
    "few_coins",
    "list_sum",
    "fibonacci",
    "mean_pair",
    "clock_add",
)  # the policy solves some
HELD_OUT = ("level_up", "xor_bits")
# Nearly all of the time is compilation, which each process does for itself.
QUICK = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


DEVICES = 4  # of all processes of a run together


class Starter:
    """Starts the processes of runs; what still lives at the end is killed."""

    def __init__(self, folder):
        self.folder, self.children = folder, []
        (folder / "programs").mkdir()
        for name in PROGRAMS + HELD_OUT:
            shutil.copy(SEEDS / f"{name}.py", folder / "programs")
        (folder / "tiny.py").write_text(CONFIG.format(programs=str(folder / "programs")))

    def start(self, workdir, processes):
        """Start a run; its processes, each with the path of its log."""
        with socket.socket() as listener:
            listener.bind(("localhost", 0))
            port = listener.getsockname()[1]
        flags = f"--xla_force_host_platform_device_count={DEVICES // processes}"
        made = [self._start(workdir, processes, index, port, flags) for index in range(processes)]
        self.children += made
        return made

    def finish(self, workdir, processes):
        """Start a run and wait for its end."""
        for child in self.start(workdir, processes):
            assert child.wait(timeout=600) == 0, child.log.read_text()[-3000:]

    def kill(self):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()

    def _start(self, workdir, processes, index, port, flags):
        command = [sys.executable, "-m", "launch.train", f"--config={self.folder}/tiny.py"]
        command += [f"--workdir={workdir}"]
        command += [] if shutil.which("runsc") else ["--config.sandbox.tier=subprocess"]
        if processes > 1:
            command += [f"--coordinator=localhost:{port}", f"--processes={processes}"]
            command += [f"--process={index}"]
        path = self.folder / f"{workdir.name}.{index}.log"
        with path.open("w") as log:
            child = subprocess.Popen(
                command, cwd=ROOT, env=os.environ | QUICK | {"XLA_FLAGS": flags},
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        child.log = path
        return child


@pytest.fixture(scope="module")
def starter(tmp_path_factory):
    made = Starter(tmp_path_factory.mktemp("runs"))
    yield made
    made.kill()


@pytest.fixture(scope="module")
def alone(starter, tmp_path_factory):
    """The work directory of the run of one process, made once for all workers of pytest."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    workdir = shared / "alone"
    with (shared / "alone.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (workdir / "results.json").exists():
            starter.finish(workdir, 1)
    return workdir


def metrics(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    own = ("time/", "count/compiles")
    return [{k: v for k, v in row.items() if not k.startswith(own)} for row in rows]


def same_run(alone, together):
    expected, found = metrics(alone), metrics(together)
    assert [row["iteration"] for row in found] == [0, 1]
    assert [row.keys() for row in found] == [row.keys() for row in expected]
    for row, other in zip(found, expected, strict=True):
        for name, value in row.items():
            assert value == pytest.approx(other[name], rel=2e-3, abs=1e-4, nan_ok=True), name
    assert metrics(together / hosts.FOLDER / "1") == found  # every process knows the same
    results = [json.loads((run / "results.json").read_text()) for run in (alone, together)]
    answers = [[e["suites"]["known"]["answers"] for e in r["evaluations"]] for r in results]
    assert answers[0] == answers[1] and "1" in answers[0][0]
    with np.load(alone / "final.npz") as a, np.load(together / "final.npz") as b:
        for name in a.files:
            if a[name].dtype.kind == "f":
                np.testing.assert_allclose(a[name], b[name], rtol=1e-3, atol=1e-4)
            else:
                assert np.array_equal(a[name], b[name]), name


def test_four_processes_share_the_work_and_make_the_same_run(starter, alone):
    starter.finish(starter.folder / "four", 4)
    same_run(alone, starter.folder / "four")


def test_a_killed_process_ends_the_others_and_two_that_go_on_make_the_same_run(starter, alone):
    workdir = starter.folder / "two"
    children = starter.start(workdir, 2)
    deadline = time.monotonic() + 300
    while not (workdir / "checkpoints" / "0").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    children[1].send_signal(signal.SIGKILL)
    assert children[0].wait(timeout=200) == hosts.MISSING, children[0].log.read_text()[-3000:]
    assert f"process 1 (pid {children[1].pid} on " in children[0].log.read_text()
    starter.finish(workdir, 2)
    same_run(alone, workdir)
