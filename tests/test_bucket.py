"""Checkpoints and programs of a run in a bucket, written by TensorStore's own client.

The service is a stand-in of this machine; no real bucket was at hand.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def found():
    """Everything in one process of its own, which is told where the service is."""
    own = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    own.pop("XLA_FLAGS", None)
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "bucket_process.py"],
        env=own, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_committed_steps_come_back_bit_for_bit(found):
    assert found["steps"] == [2, 3] and found["whole"]


def test_a_step_without_its_commit_marker_is_not_listed_and_its_number_is_free(found):
    assert found["steps without the torn one"] == [2]
    assert found["steps written again"] == [2, 3]


def test_a_damaged_newest_step_is_put_aside_for_the_one_before(found):
    assert found["fell back to"] == 2 and found["equal"]
    assert "step 3 cannot be read" in found["said"] and "FELL BACK to step 2" in found["said"]
    assert found["steps at last"] == [2] and found["aside"]


def test_programs_go_up_in_pieces_and_a_broken_write_leaves_the_old_ones(found):
    assert found["read back"] and found["broke off"]
