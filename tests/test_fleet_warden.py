"""The warden of a Ray node removes its folder for good, with what still writes there."""

from __future__ import annotations

import subprocess
import sys
import time

from sandbox.fleet import warden

PARENT = """
import os, subprocess, sys
warden, folder, writer = sys.argv[1:]
subprocess.Popen([sys.executable, "-I", warden, str(os.getpid()), folder], stdin=subprocess.PIPE)
subprocess.Popen([sys.executable, "-c", writer, folder + "/node"])
print("up", flush=True)
sys.stdin.read()
"""
WRITER = """
import os, sys, time
while True:
    os.makedirs(sys.argv[1], exist_ok=True)
    time.sleep(0.01)
"""


def test_kill_9_of_the_owner_removes_what_a_node_still_writes(tmp_path):
    folder, other = tmp_path / "run-1", tmp_path / "run-2"
    folder.mkdir()
    other.mkdir()
    owner = subprocess.Popen(
        [sys.executable, "-c", PARENT, warden.__file__, str(folder), WRITER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert owner.stdout.readline() == b"up\n"
    deadline = time.monotonic() + 60
    while not (folder / "node").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (folder / "node").exists()
    owner.kill()
    owner.wait()
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.0)
    assert [path.name for path in tmp_path.iterdir()] == ["run-2"]
