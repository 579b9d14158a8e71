"""The launcher of TPU slices, against a stand-in for gcloud whose hosts are folders."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from launch import tpu_commands, tpu_vm
from spade_jax import hosts, preemption

ROOT = pathlib.Path(__file__).resolve().parent.parent
SETUP = 'mkdir -p "$HOME/spade_jax" && tar -xzf "$HOME/spade_jax.tar.gz" -C "$HOME/spade_jax"\n'
# The first time a host runs this it waits to be pre-empted; the second time it ends well.
COMMAND = (
    'ls "$HOME/spade_jax/launch/train.py"; echo "host $HOST of $0"; '
    'if [ -e "$FAKE_GCLOUD/again$HOST" ]; then exit 0; fi; touch "$FAKE_GCLOUD/again$HOST"; '
    'if [ "$HOST" = 0 ]; then touch "$FAKE_GCLOUD/preempt"; fi; sleep 60'
)


def tpu(size="v5e-16", **changes):
    return tpu_commands.Slice(**({"name": "s", "size": size, "zone": "z"} | changes))


@pytest.fixture
def place(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gcloud").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" "{ROOT}/tests/fake_gcloud.py" "$@"\n'
    )
    (tmp_path / "bin" / "gcloud").chmod(0o755)
    (tmp_path / "setup.sh").write_text(SETUP)
    return tmp_path


def launch(place, *arguments):
    own = os.environ | {"PATH": f"{place}/bin:{os.environ['PATH']}", "FAKE_GCLOUD": str(place)}
    line = [
        sys.executable, "-m", "launch.tpu_vm", *arguments[:1], "--name=s", "--size=v5e-16",
        "--zone=z", "--poll_seconds=0.05", *arguments[1:],
    ]  # fmt: skip
    return subprocess.run(line, cwd=ROOT, env=own, capture_output=True, text=True, timeout=120)


def calls(place):
    path = place / "calls.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# Sizes count chips for v5e and v6e and cores, two a chip, for the others; hosts hold four chips,
# or all of a slice of up to eight for v5e and v6e.
@pytest.mark.parametrize(
    ("size", "kind", "runtime", "chips", "hosts"),
    [
        ("v5e-16", "v5litepod-16", "v2-alpha-tpuv5-lite", 16, 4),
        ("v5e-8", "v5litepod-8", "v2-alpha-tpuv5-lite", 8, 1),
        ("v5p-128", "v5p-128", "v2-alpha-tpuv5", 64, 16),
        ("v5p-8", "v5p-8", "v2-alpha-tpuv5", 4, 1),
        ("v6e-256", "v6e-256", "v2-alpha-tpuv6e", 256, 64),
        ("v4-32", "v4-32", "tpu-ubuntu2204-base", 16, 4),
    ],
)
def test_sizes_become_accelerator_types(size, kind, runtime, chips, hosts):
    made = tpu(size)
    assert (made.chips, made.hosts) == (chips, hosts)
    line = tpu_commands.create(made)
    assert f"--accelerator-type={kind}" in line and f"--runtime-version={runtime}" in line


def test_the_request_says_what_was_asked_for():
    made = tpu(
        "v5p-128", project="p", provision="reserved", internal_ips=True, service_account="a@b",
        valid_until="6h",
    )  # fmt: skip
    assert tpu_commands.create(made) == [
        "gcloud", "compute", "tpus", "queued-resources", "create", "s", "--zone=z", "--project=p",
        "--node-id=s", "--accelerator-type=v5p-128", "--runtime-version=v2-alpha-tpuv5",
        "--reserved", "--internal-ips", "--service-account=a@b", "--valid-until-duration=6h",
    ]  # fmt: skip
    assert "--spot" in tpu_commands.create(tpu()) and "--reserved" not in tpu_commands.create(tpu())
    assert "--internal-ip" in tpu_commands.on_hosts(made, "true")


@pytest.mark.parametrize(
    "changes", [{"name": "No_Good"}, {"size": "h100-8"}, {"size": "v5e"}, {"size": "v5p-1"}]
)
def test_what_gcloud_would_refuse_is_refused_before(changes):
    with pytest.raises(ValueError, match="--name|--size"):
        tpu(**changes)


def test_a_dry_run_prints_everything_and_runs_nothing(place):
    done = launch(place, "keep", "--dry_run", "--", "python", "-m", "x", "--workdir=gs://b/r")
    assert done.returncode == 0 and calls(place) == []
    for text in (
        "queued-resources create s --zone=z --node-id=s", "archive --format=tar.gz",
        "tpu-vm scp", "sha512sum -c runsc.sha512", "-m sandbox doctor",
        "python -m x --workdir=gs://b/r", "4 hosts, spot",
    ):  # fmt: skip
        assert text in done.stdout, text


SSH = "gcloud compute tpus tpu-vm ssh s --worker=all --zone=z '--command="


# The reference of gcloud: queued-resources create, describe and delete, tpu-vm scp and ssh.
@pytest.mark.parametrize(
    ("size", "kind"),
    [
        ("v5e-16", "--accelerator-type=v5litepod-16 --runtime-version=v2-alpha-tpuv5-lite"),
        ("v5p-128", "--accelerator-type=v5p-128 --runtime-version=v2-alpha-tpuv5"),
    ],
)
def test_a_dry_run_prints_exactly_these_commands(place, size, kind):
    train = "python -m launch.train --coordinator=auto --config=c.py --workdir=gs://b/r"
    look = "gcloud compute tpus queued-resources describe s --zone=z '--format=value(state.state)'"
    printed = launch(place, "keep", f"--size={size}", "--dry_run", "--", *train.split()).stdout
    lines = [line[2:] for line in printed.splitlines() if line.startswith("$ ")]
    folder = lines[3].partition("--output=")[2].partition("/spade_jax.tar.gz")[0]
    assert lines == [
        look,
        f"gcloud compute tpus queued-resources create s --zone=z --node-id=s {kind} --spot",
        look,
        f"git -C {ROOT} archive --format=tar.gz --output={folder}/spade_jax.tar.gz HEAD",
        f"gcloud compute tpus tpu-vm scp {folder}/spade_jax.tar.gz s: --worker=all --zone=z",
        f"{SSH}set -euo pipefail",
        f'{SSH}cd "$HOME/spade_jax"',
        look,
        f'{SSH}cd "$HOME/spade_jax" 2>/dev/null || {{ echo "state=absent"; exit 0; }}',
    ]
    assert f"{train} >>run.log 2>&1 & echo $! >child.pid; wait $!" in printed
    printed = launch(place, "delete", "--dry_run").stdout
    assert "\n$ gcloud compute tpus queued-resources delete s --zone=z --force --quiet\n" in printed


def test_trainers_that_would_not_know_of_each_other_are_refused(place):
    line = ["--", "python", "-m", "launch.train", "--workdir=gs://b/r"]
    done = launch(place, "start", *line)
    assert done.returncode == 1 and "--coordinator=auto" in done.stderr and calls(place) == []
    assert launch(place, "start", "--size=v5e-8", "--dry_run", *line).returncode == 0  # one host


def test_work_on_disks_that_are_lost_is_refused(place):
    for flags in (["--workdir=runs/a"], ["--workdir", "runs/a"]):
        done = launch(place, "keep", "--", "python", "-m", "x", *flags)
        assert done.returncode == 1 and "gs://" in done.stderr and calls(place) == []
    done = launch(place, "start")
    assert done.returncode == 1 and "after --" in done.stderr


def test_a_pre_empted_slice_is_asked_for_again_and_the_command_goes_on(place):
    done = launch(
        place, "keep", f"--setup_script={place}/setup.sh", "--", "bash", "-c", COMMAND, "gs://b/r"
    )
    assert done.returncode == 0, done.stderr + done.stdout
    verbs = [call[3] for call in calls(place) if call[2] == "queued-resources"]
    assert [verb for verb in verbs if verb != "describe"] == ["create", "delete", "create"]
    assert verbs[verbs.index("delete") - 1] == "describe"  # it had asked until the slice was gone
    assert done.stdout.count("pre-empted; going on") == 1
    assert "every host has ended with 0" in done.stdout
    for number in range(4):
        log = (place / f"host{number}" / "spade_jax" / "run.log").read_text()
        assert f"host {number} of gs://b/r" in log and "launch/train.py" in log
    printed = done.stdout.count("\n$ gcloud")
    assert printed == len(calls(place))  # nothing was run that was not printed


def test_hosts_that_ended_because_another_was_missing_go_on(place):
    begun = "if [ -e again ]; then exit 0; fi; touch again; exit $(( HOST == 2 ? 75 : 76 ))"
    done = launch(place, "keep", f"--setup_script={place}/setup.sh", "--", "bash", "-c", begun)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "every host has ended with 0" in done.stdout
    assert [c[3] for c in calls(place)].count("create") == 1
    assert (tpu_vm.PREEMPTED_CODE, tpu_vm.MISSING_CODE) == (
        str(preemption.EXIT_CODE),
        str(hosts.MISSING),
    )


# JAX aborts the others (134) when the first host is gone; a host that aborts by itself has a fault.
def test_an_abort_counts_as_pre_emption_only_beside_a_lost_host(place):
    gone = "touch again; if [ $HOST = 0 ]; then rm run.pid; kill -KILL $PPID; fi; exit 134"
    setup = f"--setup_script={place}/setup.sh"
    done = launch(place, "keep", setup, "--", "bash", "-c", f"[ -e again ] && exit 0; {gone}")
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.count("pre-empted; going on") == 1
    done = launch(place, "keep", setup, "--", "bash", "-c", "exit 134")
    assert done.returncode == 1 and "134, 134, 134, 134" in done.stderr


def test_a_command_that_fails_by_itself_is_not_started_again(place):
    line = ["--", "bash", "-c", "exit $(( HOST == 2 ? 3 : 0 ))"]
    done = launch(place, "keep", f"--setup_script={place}/setup.sh", *line)
    assert done.returncode == 1 and "exit codes of the hosts: 0, 0, 3, 0" in done.stderr
    assert [c[3] for c in calls(place)].count("create") == 1
    done = launch(place, "delete")
    assert done.returncode == 0 and not (place / "host0").exists()


def test_stop_lets_the_command_save_and_a_second_start_starts_nothing(place):
    catches = 'trap "exit 75" TERM; touch ready; sleep 60 & wait $!'
    setup = f"--setup_script={place}/setup.sh"
    for verb in ("create", "wait", "copy", "setup"):
        assert launch(place, verb, setup).returncode == 0
    start = ["start", "--", "bash", "-c", catches]
    assert "started as" in launch(place, *start).stdout
    assert launch(place, *start).stdout.count("\nalready running as") == 4
    assert "hosts: running, running, running, running" in launch(place, "status").stdout
    assert launch(place, "stop").stdout.count("\nSIGTERM sent") == 4
    codes = [place / f"host{number}" / "spade_jax" / "run.exit" for number in range(4)]
    for _ in range(200):
        if all(path.exists() for path in codes):
            break
        subprocess.run(["sleep", "0.05"])
    assert [path.read_text().strip() for path in codes] == ["75"] * 4
