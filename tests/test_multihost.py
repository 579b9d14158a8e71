"""An update over two and four processes of `jax.distributed` equals that of one."""

import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

DEVICES = 4  # of all processes together
HERE = pathlib.Path(__file__).parent


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(processes, folder):
    """Run the worker in every process; give what each has written."""
    address = f"127.0.0.1:{free_port()}"
    flags = f"--xla_force_host_platform_device_count={DEVICES // processes}"
    around = dict(os.environ, XLA_FLAGS=flags, JAX_PLATFORMS="cpu", PYTHONPATH=str(HERE.parent))
    around["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # nearly all of the time is compilation
    outs = [folder / f"{processes}_{index}.npz" for index in range(processes)]
    started = [
        subprocess.Popen(
            [sys.executable, HERE / "multihost_worker.py", address, str(processes), str(i), out],
            env=around, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for i, out in enumerate(outs)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=600)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * processes, "\n".join(said)
    return [dict(np.load(out)) for out in outs]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return run(1, tmp_path_factory.mktemp("alone"))[0]


@pytest.mark.parametrize("processes", [2, 4])
def test_several_processes_equal_one(alone, processes, tmp_path):
    for written in run(processes, tmp_path):
        assert written.pop("processes") == processes
        for name, value in written.items():
            tolerance = 1e-6 if name.startswith("param_") else 1e-5
            np.testing.assert_allclose(
                value, alone[name], rtol=1e-4, atol=tolerance, err_msg=name, equal_nan=True
            )
