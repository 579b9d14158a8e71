"""Templates for other schedulers: which exit codes start a run again."""

import os
import pathlib
import subprocess

import pytest

from spade_jax import hosts, preemption

TEMPLATES = pathlib.Path(__file__).resolve().parent.parent / "launch" / "templates"
SRUN = """#!/bin/bash
# Stand-in: each task in a process group of its own, told to end as Slurm does with --signal.
shift
for task in 0 1 2; do SLURM_PROCID=$task setsid "$@" & groups="$groups $!"; done
if [ -n "$WITH_TERM" ]; then
  while [ "$(ls "$RUN" | grep -c ready)" != 3 ]; do sleep 0.02; done
  for group in $groups; do kill -TERM -- -$group; done
fi
wait
exit 137
"""
TRAINER = """#!/bin/bash
trap "exit 75" TERM
touch "$RUN/ready$SLURM_PROCID"
if [ -n "$WITH_TERM" ]; then sleep 20 & wait; fi
code=$(echo $GIVEN | cut -d' ' -f$((SLURM_PROCID + 1)))
if [ "$code" = killed ]; then kill -KILL $PPID; fi
exit "$code"
"""


@pytest.fixture
def submit(tmp_path):
    """Run the batch script with a trainer that ends with given codes; tells whether it requeues."""
    asked, run = tmp_path / "asked", tmp_path / "run"
    files = {
        "bin/srun": SRUN,
        "bin/scontrol": f'#!/bin/sh\necho "$@" >>{asked}\n',
        ".venv/bin/python": TRAINER,
    }
    run.mkdir()
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def begin(given="", **changes):
        own = os.environ | {
            "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "CHECKOUT": str(tmp_path),
            "RUN": str(run), "GIVEN": given, "SLURM_JOB_ID": "7", "WITH_TERM": "",
        }  # fmt: skip
        script = ["bash", TEMPLATES / "slurm.sbatch"]
        subprocess.run(script, env=own | changes, timeout=60, check=False)
        return asked.exists() and asked.read_text() == "requeue 7\n"

    return begin


@pytest.mark.parametrize(
    ("given", "again"),
    [
        ("75 75 75", True),  # all have saved
        ("76 76 killed", True),  # one hung, and srun killed it: it has no code of its own
        ("76 0 75", True),
        ("76 76 1", False),  # one has a fault, which the others missed
        ("0 0 0", False),
    ],
)
def test_slurm_queues_again_what_was_interrupted_and_not_what_failed(submit, given, again):
    assert submit(given) == again


def test_slurm_queues_again_after_its_own_signal_to_every_process(submit):
    assert submit(WITH_TERM="1")


def test_slurm_does_not_queue_for_ever(submit):
    assert not submit("76 76 76", SLURM_RESTART_COUNT="100")


def test_gke_restarts_on_both_codes_and_all_processes_form_one_run():
    text = (TEMPLATES / "xpk.sh").read_text()
    assert f"--restart-on-exit-codes={preemption.EXIT_CODE},{hosts.MISSING} " in text
    assert "--coordinator=auto" in text
