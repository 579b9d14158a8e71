"""Processes that form one run exchange values; a missing one ends the others in time, by name."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import pytest

from spade_jax import hosts

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "tests" / "host_process.py"


def free_port():
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


@pytest.fixture
def start(tmp_path):
    """Start processes of one cluster; what still lives at the end is killed."""
    started = []

    def begin(count, mood):
        children = []
        port = free_port()
        environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
        environment["PYTHONPATH"] = str(ROOT)
        for index in range(count):
            command = [sys.executable, SCRIPT, str(index), str(count), str(port), tmp_path, mood]
            children.append(
                subprocess.Popen(
                    command, cwd=ROOT, env=environment, text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                )
            )  # fmt: skip
        started.extend(children)
        return children

    yield begin
    for child in started:
        if child.poll() is None:
            child.kill()
        child.communicate()


def test_every_process_learns_what_all_have(start):
    for child in start(3, "calm"):
        out, errors = child.communicate(timeout=120)
        assert child.returncode == 0, errors
        assert [line for line in out.splitlines() if "[Gloo]" not in line] == ["gathered", "ended"]


def gathered(children):
    for child in children:
        assert "gathered\n" in iter(child.stdout.readline, "")


def end_naming(children, lost):
    """All but one end by themselves, name that one and print their stacks."""
    for index, child in enumerate(children):
        if index == lost:
            continue
        _, errors = child.communicate(timeout=90)
        assert child.returncode == hosts.MISSING, errors
        assert f"process {lost} (pid {children[lost].pid} on " in errors
        assert "): silent for" in errors
        assert "Thread" in errors and "host_process.py" in errors  # the stacks


@pytest.mark.parametrize(("sign", "lost"), [(signal.SIGSTOP, 0), (signal.SIGKILL, 2)])
def test_a_stopped_or_killed_process_of_four_is_named_and_the_others_end(start, sign, lost):
    children = start(4, "waits")
    gathered(children)
    children[lost].send_signal(sign)
    end_naming(children, lost)


def test_a_process_that_wakes_up_beside_its_successor_ends_and_disturbs_nobody(start):
    old = start(2, "waits")
    gathered(old)
    old[1].send_signal(signal.SIGSTOP)
    end_naming(old, 1)
    new = start(2, "waits")
    gathered(new)
    old[1].send_signal(signal.SIGCONT)
    _, errors = old[1].communicate(timeout=90)
    assert old[1].returncode == hosts.MISSING
    assert f"process 1 (pid {new[1].pid} on " in errors and "in the place of this" in errors
    for child in new:
        _, errors = child.communicate(timeout=90)
        assert child.returncode == 0, errors


def test_the_others_end_with_the_first_process_which_leads_the_cluster(start):
    children = start(2, "waits")
    gathered(children)
    children[0].kill()
    _, errors = children[1].communicate(timeout=90)
    assert children[1].returncode not in (0, None)
    assert "the leader" in errors or "process 0 (pid" in errors  # JAX ends it before we do


def test_a_process_that_hangs_while_its_heart_beats_is_named_after_the_barrier(start):
    children = start(2, "hangs")
    _, errors = children[0].communicate(timeout=90)
    assert children[0].returncode == hosts.MISSING, errors
    assert "process 1 (pid" in errors and "not at the gather for" in errors


def test_a_process_that_the_others_gave_up_on_follows_them(start):
    children = start(3, "hangs")
    _, errors = children[1].communicate(timeout=90)
    assert children[1].returncode == hosts.MISSING, errors
    assert "): gone for" in errors


def test_a_process_that_ends_with_an_error_ends_the_others(start):
    children = start(3, "fails")
    for index, child in enumerate(children):
        _, errors = child.communicate(timeout=90)
        assert child.returncode == (1 if index == 1 else hosts.MISSING), errors
        expected = "this process has a fault" if index == 1 else "): ended with an error"
        assert expected in errors


def test_an_error_of_an_earlier_run_ends_nobody(start, tmp_path):
    (tmp_path / hosts.FOLDER).mkdir()
    beat = {"beats": hosts.FAILED, "room": "learn", "gathers": 7, "waits": False}
    text = json.dumps(beat | {"host": "somewhere", "pid": 7})
    (tmp_path / hosts.FOLDER / "1.json").write_text(text, encoding="utf-8")
    for child in start(2, "late"):
        _, errors = child.communicate(timeout=90)
        assert child.returncode == 0, errors


def test_a_disk_that_fails_for_a_moment_stops_no_heart(start):
    for child in start(2, "disk"):
        _, errors = child.communicate(timeout=90)
        assert child.returncode == 0, errors
        assert "Exception in thread" not in errors


def test_one_process_exchanges_with_itself_and_writes_nothing(tmp_path):
    with hosts.Hosts(tmp_path, hosts.HostsConfig()) as alone:
        assert alone.mine([3, 4]) == [3, 4]
        assert alone.gather([3, 4]) == [[3, 4]]
        assert alone.spread([3, 4], lambda share: [-item for item in share], int) == [-3, -4]
    assert not list(tmp_path.iterdir())


def test_a_silence_shorter_than_three_beats_is_refused():
    with pytest.raises(ValueError, match=r"silence_seconds=1.0.*at least 3"):
        hosts.HostsConfig(silence_seconds=1.0)
