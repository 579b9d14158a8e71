"""The fleet on Ray, with several nodes on this machine.

`scaling`: programs per second of one node with one box on one processor, then of as many such
nodes as there are processors, each pinned to its own; interleaved. `kills`: three nodes under load,
one of them killed every 20 s and replaced, for `KILL_SECONDS`. A host is stopped first, until what
it has said is heard; then it is written down which plays wait for it, and it is killed: those must
be the plays that are lost. The client and Ray's own processes work on the same processors: on a
real fleet they do not.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import math
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

from sandbox import usage
from sandbox.fleet import client

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = "print(sum(range({})))"
ROUNDS = 5
ROUND_SECONDS = 6.0
KILL_SECONDS = 180.0
KILL_EVERY_SECONDS = 20.0
START_SECONDS = 180.0
DRAIN_SECONDS = 1.0  # what a stopped host has said is heard within
WARDENS = (b"warden.py", b"janitor.py")  # outlive a host to clean up after it
SLOW = """
class SlowEnv:
    def step(self, action):
        import time; time.sleep(0.2)
        return action, 0.0, False, False, {}
"""
LOAD = {"op": "load", "play": 0, "seed": 0, "max_turns": 100, "pacing": "respect"}
BATCHES = 10  # of a play in the kill study


def measure(only: str) -> Iterator[dict]:
    """Yield what was measured; see launch.bench."""
    try:
        from sandbox.fleet import cluster
    except ModuleNotFoundError as error:
        yield {"name": "fleet", "value": "not run", "unit": "", "why": f"no Ray: {error}"}
        return
    for name, study in (("fleet/scaling", _scaling), ("fleet/kills", _kills)):
        if only in name:
            with tempfile.TemporaryDirectory(prefix="b", dir="/tmp") as folder:
                yield from study(name, cluster, pathlib.Path(folder))


class _Nodes:
    """Owns a head without boxes, and hosts of one box each."""

    def __init__(self, folder: pathlib.Path):
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        self._folder = folder
        self._head = self._door("--head", "--nocrew", f"--port={port}")
        self.hosts: list[subprocess.Popen] = []
        self.address = self._told(self._head).split()[-1]

    def add(self, *, processor: int | None = None) -> subprocess.Popen:
        """Start a host, pinned to a processor if one is given; it joins a little later."""
        host = self._door(f"--address={self.address}", "--boxes=1", processor=processor)
        self.hosts.append(host)
        return host

    def _door(self, *arguments: str, processor: int | None = None) -> subprocess.Popen:
        pinned = [] if processor is None else ["taskset", "-c", str(processor)]
        door = [sys.executable, "-m", "launch.sandbox_fleet", "--unauthenticated"]
        with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as log:
            process = subprocess.Popen(
                [*pinned, *door, *arguments], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT
            )
        process.log = pathlib.Path(log.name)
        return process

    def _told(self, process: subprocess.Popen) -> str:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            for line in process.log.read_text(errors="replace").splitlines():
                if "is in the fleet at" in line:
                    return line
            time.sleep(0.2)
        raise RuntimeError(f"a node did not start: {process.log.read_text()[-1000:]}")

    def close(self) -> None:
        for process in [*self.hosts, self._head]:
            process.send_signal(signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def _cluster(cluster, folder: pathlib.Path, processors: list[int | None]):
    """Nodes with a host for each entry of `processors`, and the way to them."""
    nodes = _Nodes(folder)
    try:
        for processor in processors:
            nodes.add(processor=processor)
        node = cluster.Node(address=nodes.address, name="bench", carries_boxes=False)
        try:
            whole = cluster.Cluster(node)
            deadline = time.monotonic() + START_SECONDS
            while len(whole.reports()) < len(processors):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"only {len(whole.reports())} hosts joined")
                time.sleep(0.5)
            yield nodes, whole
        finally:
            node.close()
    finally:
        nodes.close()


class _Part:
    """The way to some hosts of a cluster."""

    def __init__(self, whole, count: int):
        self._whole, self._count = whole, count

    def hosts(self) -> dict:
        return dict(sorted(self._whole.hosts().items())[: self._count])

    def close(self) -> None:
        """The cluster is closed by who opened it."""


def _scaling(name: str, cluster, folder: pathlib.Path) -> Iterator[dict]:
    """Rounds with all hosts, between rounds with one of them."""
    processors = sorted(os.sched_getaffinity(0))
    counts = (1, len(processors))
    found: dict[int, list[float]] = {count: [] for count in counts}
    with _cluster(cluster, folder, processors) as (_, whole), contextlib.ExitStack() as stack:
        fleets = {n: stack.enter_context(client.Fleet(_Part(whole, n))) for n in counts}
        while len(fleets[counts[1]].reports()) < counts[1]:
            time.sleep(0.1)
        for count in counts:
            _rate(fleets[count], count, 2.0)  # templates start
        for _ in range(ROUNDS):
            for count in counts:
                found[count].append(_rate(fleets[count], count, ROUND_SECONDS))
    one, every = (statistics.median(found[count]) for count in counts)
    ratios = [b / a / counts[1] for a, b in zip(*found.values(), strict=True)]
    yield {"name": f"{name}/1_node", "value": one, "unit": "programs/s"}
    yield {
        "name": f"{name}/{counts[1]}_nodes",
        "value": every,
        "unit": "programs/s",
        "ratio": round(statistics.median(ratios), 3),
        "against": f"{counts[1]} x one node; each node on a processor of its own",
        "target": "at least 0.85",
    }


def _rate(fleet, count: int, seconds: float) -> float:
    """Programs per second with always six of them under way per host."""
    ends = time.monotonic() + seconds
    waiting = {fleet.start_run(PROGRAM.format(i)) for i in range(6 * count)}
    started, done = time.monotonic(), 0
    while waiting:
        got, waiting = concurrent.futures.wait(
            waiting, return_when=concurrent.futures.FIRST_COMPLETED
        )
        done += len(got)
        if time.monotonic() < ends:
            waiting |= {fleet.start_run(PROGRAM.format(i)) for i in range(len(got))}
    return done / (time.monotonic() - started)


class _Load:
    """Owns threads that keep programs and plays under way, and what came of them."""

    def __init__(self, fleet, programs: int = 8, plays: int = 12):
        self._fleet = fleet
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._number = 0
        self.programs = collections.Counter()  # right, wrong, or the status
        self.plays: dict[int, list] = {}  # number -> [session, statuses, end; inf while it goes on]
        works = [self._run_programs] * programs + [self._make_plays] * plays
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    def waiting_for(self, name: str) -> set[int]:
        """Plays that a host has answered before and that wait for its next answer now."""
        plays = list(self.plays.items())
        return {
            n
            for n, (session, statuses, end) in plays
            if session.host == name and statuses and statuses[-1] == "ok" and end == math.inf
        }

    def lost(self) -> set[int]:
        """Plays that the sandbox failed."""
        return {n for n, (_, statuses, _) in self.plays.items() if "infra" in statuses}

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _next(self) -> int:
        with self._lock:
            self._number += 1
            return self._number

    def _run_programs(self) -> None:
        while not self._stop.is_set():
            number = self._next()
            outcome = self._fleet.run(f"print({number})")
            right = outcome.stdout == f"{number}\n"
            with self._lock:
                self.programs[outcome.status if outcome.status != "ok" else right] += 1

    def _make_plays(self) -> None:
        while not self._stop.is_set():
            number, session = self._next(), self._fleet.open(SLOW)
            play = self.plays[number] = [session, [], math.inf]
            batches = [LOAD] + [{"op": "step", "play": 0, "action": str(i)} for i in range(BATCHES)]
            for request in batches:
                play[1].append(session.step([request])[0].status)
                if play[1][-1] != "ok":
                    break
            play[2] = time.monotonic()
            session.close()


def _kill(victim: subprocess.Popen, load: _Load) -> set[int]:
    """Kill a host at once, as when its power is cut; give the plays that waited for it."""
    processes = [pid for pid, _ in usage.tree(victim.pid) if not _is_warden(pid)]
    for pid in processes:
        _signal(pid, signal.SIGSTOP)
    time.sleep(DRAIN_SECONDS)
    waiting = load.waiting_for(f"{os.uname().nodename}-{victim.pid}")
    for pid in processes:
        _signal(pid, signal.SIGKILL)
    victim.wait()
    return waiting


def _is_warden(pid: int) -> bool:
    try:
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return any(name in command for name in WARDENS)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _kills(name: str, cluster, folder: pathlib.Path) -> Iterator[dict]:
    """Kill a host at random every KILL_EVERY_SECONDS, under load, and start another."""
    order = random.Random(0)
    expected: list[set[int]] = []
    with _cluster(cluster, folder, [None] * 3) as (nodes, whole), client.Fleet(whole) as fleet:
        load = _Load(fleet)
        ends = time.monotonic() + KILL_SECONDS
        while time.monotonic() < ends:
            time.sleep(KILL_EVERY_SECONDS * order.uniform(0.9, 1.1))
            up = {report.host.rpartition("-")[2] for report in fleet.reports()}
            victims = [host for host in nodes.hosts if str(host.pid) in up]
            if len(victims) > 1:
                victim = order.choice(victims)
                expected.append(_kill(victim, load))
                nodes.hosts.remove(victim)
                nodes.add()
        load.close()
        losses = fleet.losses
    lost, in_flight = load.lost(), set().union(*expected)
    programs = sum(load.programs.values())
    yield {
        "name": f"{name}/hosts_killed",
        "value": len(expected),
        "unit": "hosts",
        "counted_by_the_fleet": losses.hosts,
    }
    yield {
        "name": f"{name}/programs",
        "value": programs,
        "unit": "programs",
        "right": load.programs[True],
        "otherwise": {str(k): v for k, v in load.programs.items() if k is not True},
        "moved": losses.moved,
        "infra_counted_by_the_fleet": losses.programs,
        "target": "all right, each answered once",
    }
    yield {
        "name": f"{name}/plays_lost",
        "value": len(lost),
        "unit": "plays",
        "in_flight_at_kills": len(in_flight),
        "at_each_kill": [len(plays) for plays in expected],
        "lost_and_not_in_flight": len(lost - in_flight),
        "in_flight_and_not_lost": len(in_flight - lost),
        "counted_by_the_fleet": losses.sessions,
        "of": len(load.plays),
        "target": "lost = in flight = counted by the fleet",
    }
