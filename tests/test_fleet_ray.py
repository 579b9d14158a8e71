"""The fleet on Ray: several nodes on this machine, one killed under load, one told to leave."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

pytest.importorskip("ray", reason="the fleet needs Ray: pip install '.[fleet]'")

from sandbox.fleet import cluster, desk  # noqa: E402
from spade_jax import crews, settings  # noqa: E402

ROOT = pathlib.Path(__file__).parents[1]
PATIENCE_SECONDS = 240.0  # a Ray node takes a minute where the machine is busy
SLOW = """
class SlowEnv:
    def step(self, action):
        import time; time.sleep(float(action))
        return action, 0.0, False, False, {}
"""
LOAD = {"op": "load", "play": 0, "seed": 0, "max_turns": 50, "pacing": "respect"}
TRAINER = """
import sys, time
from sandbox.fleet import cluster, desk
fleet = cluster.join(sys.argv[1], desk.FleetConfig(tier="subprocess"))
session = fleet.open(sys.argv[2])
session.step([{"op": "load", "play": 0, "seed": 0, "max_turns": 5, "pacing": "respect"}])
print("up", flush=True)
time.sleep(1000)
"""


def door(folder: pathlib.Path, name: str, *arguments: str) -> subprocess.Popen:
    """Start a process of launch.sandbox_fleet that writes to a log; its folders are its own."""
    (folder / name).mkdir()
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "launch.sandbox_fleet", "--unauthenticated", *arguments],
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(folder / name)},
        )


def host(folder: pathlib.Path, name: str, address: str) -> subprocess.Popen:
    return door(folder, name, f"--address={address}", "--tier=subprocess", "--boxes=1", "--every=2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Short, since Ray puts sockets below it."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="f", dir="/tmp") as made:
        yield pathlib.Path(made)


@pytest.fixture(scope="module")
def running(folder):
    """A cluster of a head without boxes and two hosts, and a fleet that uses it."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    head = door(folder, "h", "--head", "--nocrew", f"--port={port}")
    wait_until(
        lambda: "is in the fleet at" in log(folder, "h") or head.poll() is not None,
        lambda: log(folder, "h"),
    )
    assert head.poll() is None, log(folder, "h")
    address = log(folder, "h").split("is in the fleet at")[1].split()[0]
    hosts = {name: host(folder, name, address) for name in ("a", "b")}
    try:
        config = settings.SandboxConfig(fleet=address, tier="subprocess")
        with crews.open_fleet(config, ["sympy"]) as fleet:
            wait_until(lambda: len(fleet.reports()) == 2, lambda: log(folder, "a"))
            yield fleet, address, hosts
    finally:
        for process in (head, *hosts.values()):
            process.kill()
            process.wait()


def log(folder: pathlib.Path, name: str) -> str:
    return (folder / f"{name}.log").read_text(errors="replace")


def wait_until(true, words=lambda: ""):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline, words()
        time.sleep(0.1)


def left(folder: pathlib.Path) -> list[str]:
    """Processes that name a folder, and what lies in it."""
    found = [str(path) for path in folder.iterdir() for path in path.iterdir()]
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes()
        except OSError:
            continue
        if f"{folder}/".encode() in line and int(entry) != os.getpid():
            found.append(line.replace(b"\0", b" ").decode(errors="replace"))
    return found


def test_kill_9_of_a_host_under_load_loses_only_the_plays_in_flight_there(running, folder):
    fleet, _, hosts = running
    sessions = [fleet.open(SLOW) for _ in range(6)]
    assert {s.step([LOAD])[0].status for s in sessions} == {"ok"}
    programs = [
        fleet.start_run(f"import time; time.sleep(0.2); print({i})", limits=None) for i in range(20)
    ]
    plays = [s.submit([{"op": "step", "play": 0, "action": "4"}]) for s in sessions]
    victim = sessions[0].host
    homes = [s.host for s in sessions]
    time.sleep(0.5)
    name = next(n for n, p in hosts.items() if victim.endswith(f"-{p.pid}"))
    hosts[name].send_signal(signal.SIGKILL)
    hosts[name].wait()
    statuses = [play.result(timeout=PATIENCE_SECONDS)[0].status for play in plays]
    outcomes = [program.result(timeout=PATIENCE_SECONDS) for program in programs]
    assert statuses == ["infra" if home == victim else "ok" for home in homes]
    assert fleet.losses.requests == statuses.count("infra") == homes.count(victim) > 0
    assert [o.stdout for o in outcomes] == [f"{i}\n" for i in range(20)]
    wait_until(lambda: not left(folder / name), lambda: str(left(folder / name)))
    for session in sessions:
        session.close()


def test_a_host_joins_a_running_fleet_and_leaves_it_without_a_loss(running, folder):
    fleet, address, hosts = running
    hosts["c"] = host(folder, "c", address)
    name = f"-{hosts['c'].pid}"
    wait_until(
        lambda: any(r.host.endswith(name) for r in fleet.reports()), lambda: log(folder, "c")
    )
    before = fleet.losses
    futures = [fleet.start_run(f"import time; time.sleep(0.1); print({i})") for i in range(30)]
    wait_until(lambda: any(r.host.endswith(name) and r.answered for r in fleet.reports()))
    hosts["c"].send_signal(signal.SIGTERM)
    assert [future.result().stdout for future in futures] == [f"{i}\n" for i in range(30)]
    assert hosts["c"].wait(timeout=PATIENCE_SECONDS) == 0, log(folder, "c")
    assert "has left" in log(folder, "c") and not left(folder / "c")
    assert fleet.run("print(1)").status == "ok"
    assert fleet.losses == before


def test_kill_9_of_a_trainer_ends_its_sessions_within_the_lease(running, folder):
    fleet, address, _ = running
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, address, SLOW],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert trainer.stdout.readline() == b"up\n"
    wait_until(lambda: sum(r.sessions for r in fleet.reports()) == 1)
    trainer.kill()
    trainer.wait()
    wait_until(lambda: sum(r.sessions for r in fleet.reports()) == 0)
    assert fleet.run("print(1)").status == "ok"


def test_status_tells_every_host_and_the_sum(running, folder):
    import json

    fleet, address, _ = running
    done = subprocess.run(
        [
            *(sys.executable, "-m", "launch.sandbox_fleet"),
            *(f"--address={address}", "--unauthenticated", "--status", "--json"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert [h["host"] for h in told["hosts"]] == [r.host for r in fleet.reports()]
    assert told["fleet"]["boxes"] == 1 and told["fleet"]["outcomes"]["ok"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--head"], "--unauthenticated"),
        (["--unauthenticated"], "Give one of --head and --address"),
        (["--head", "--address=h:1", "--unauthenticated"], "Give one of --head and --address"),
    ],
)
def test_the_door_refuses_what_it_cannot_do(arguments, words):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-m", "launch.sandbox_fleet", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0 and words in done.stdout + done.stderr


def test_an_address_where_nothing_listens_is_told(folder, monkeypatch):
    monkeypatch.setattr(cluster, "JOIN_SECONDS", 0.5)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(cluster.records.SandboxUnavailable, match=f"cannot join {address}"):
        cluster.join(address, desk.FleetConfig())
