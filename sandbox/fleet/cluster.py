"""Ray under the fleet: nodes, the crew actor of each, and calls to it. Nothing else imports Ray.

Every process of the fleet owns one Ray node: a host with boxes one that carries the resource
`sandbox`, a trainer one without resources. The node ends when its process does, also by kill -9;
with it end the actor and its boxes.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import ray

from sandbox import crew, janitor, records, start
from sandbox.fleet import client, desk, held, host, meter, warden

NAMESPACE = "spade_jax_sandbox"
PREFIX = "crew-"  # of an actor's name, before that of its node
ADDRESS = re.compile(r"[^:]+:\d+")
JOIN_SECONDS = 120.0
SLOW_START = "node timed out during startup"  # Ray's words on a host that is too busy
STORE_BYTES = 80 << 20  # of Ray's object store; what passes here is small
PROJECT = pathlib.Path(__file__).resolve().parents[2]  # holds the package sandbox


class Node:
    """Owns the Ray node of this process and its connection to the cluster.

    Args:
      address: HOST:PORT of the head node; empty starts a new cluster.
      name: of this node, one of its kind in the cluster.
      port: where a head node listens.
      ip: of this node; empty lets Ray find it.
      carries_boxes: this node may hold the crew actor.
    Raises:
      records.SandboxUnavailable: the node does not start, or reaches no head node.
    """

    def __init__(
        self, *, address: str, name: str, port: int = 0, ip: str = "", carries_boxes: bool
    ):
        if address and not ADDRESS.fullmatch(address):
            raise ValueError(f"fleet address {address!r}: give HOST:PORT of the head node.")
        self.name = name
        self._folder = make_folder()
        self._warden = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", warden.__file__, str(os.getpid()), self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=start.plain_environment(),
            start_new_session=True,
        )
        self._log = self._folder / "start.log"
        command = start_command(address, name, port, ip, carries_boxes)
        self._command = [*command, f"--temp-dir={self._folder}"]
        self._launch()
        try:
            self._connect(address or f"{ip or ray.util.get_node_ip_address()}:{port}")
        except BaseException:
            self.close()
            raise

    def _launch(self) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=node_environment(),
                start_new_session=True,
            )

    def _connect(self, address: str) -> None:
        """Connect this process to its node, as soon as that is up."""
        deadline = time.monotonic() + JOIN_SECONDS
        while True:
            try:
                place, _, port = address.rpartition(":")
                socket.create_connection((place, int(port)), timeout=5).close()
                with _signals_kept():
                    ray.init(
                        address=address,
                        namespace=NAMESPACE,
                        log_to_driver=False,
                        configure_logging=False,
                        _temp_dir=str(self._folder),  # picks the node of this process
                    )
                self.address = address
                return
            except Exception as error:
                # Ray raises many kinds while a node comes up; whether it is up is the question.
                late, ended = time.monotonic() > deadline, not self.alive
                if ended and not late and SLOW_START in self._last_words():
                    print(f"sandbox: {SLOW_START} (Ray waits 30 s); again", file=sys.stderr)
                    self._launch()
                elif ended or late:
                    raise records.SandboxUnavailable(
                        f"The Ray node {self.name} cannot join {address}: "
                        f"{self._last_words() if ended else error}"
                    ) from None
                time.sleep(0.5)

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace").strip()[-800:]

    @property
    def alive(self) -> bool:
        """The node's processes run."""
        return self._process.poll() is None

    def close(self) -> None:
        """Disconnect and end the node."""
        ray.shutdown()
        self._process.terminate()
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._warden.stdin.close()  # it removes the folder
        self._warden.wait()


def make_folder() -> pathlib.Path:
    """Make the folder of a node, and clear those whose process is dead. Ray puts sockets there,
    and the path of a socket holds 107 bytes: the name is short."""
    above = pathlib.Path(tempfile.gettempdir()) / f"sjf-{os.geteuid()}"
    above.mkdir(mode=0o700, exist_ok=True)
    janitor.sweep(above)
    folder = above / f"run-{os.getpid()}-{uuid.uuid4().hex[:4]}"
    folder.mkdir(mode=0o700)
    janitor.write_owner(folder)
    return folder


def start_command(address: str, name: str, port: int, ip: str, carries_boxes: bool) -> list[str]:
    """Give the command of a node that dies with this process."""
    place = [f"--address={address}"] if address else ["--head", f"--port={port}"]
    if not address:
        place += ["--include-dashboard=false"]
    if ip:
        place += [f"--node-ip-address={ip}"]
    resources = {"sandbox": 1, f"sandbox-{name}": 1} if carries_boxes else {}
    parent = [sys.executable, "-I", "-S", "-B", str(start.LAUNCHER), str(os.getpid()), "--"]
    ray_door = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
    return [
        *parent,
        *ray_door,
        *place,
        f"--node-name={name}",
        "--num-cpus=0",
        "--num-gpus=0",
        f"--resources={json.dumps(resources)}",
        f"--object-store-memory={STORE_BYTES}",
        "--include-log-monitor=false",
        "--disable-usage-stats",
    ]


def node_environment() -> dict[str, str]:
    """The environment, with this project first on the path of the node's workers."""
    path = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        # A worker whose node is lost would kill the warden of its crew, which has yet to clean up.
        "RAY_kill_child_processes_on_worker_exit": "false",
    }


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep this process's handler of SIGTERM, which `ray.init` replaces."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGTERM, handler)


@dataclasses.dataclass(frozen=True)
class RayHost:
    """A crew actor."""

    actor: Any

    def ask(self, method: str, *arguments: Any) -> concurrent.futures.Future:
        """Call the actor; a lost one is told as `held.HostLost`."""
        answer: concurrent.futures.Future = concurrent.futures.Future()

        def heard(future: concurrent.futures.Future) -> None:
            error = future.exception()
            if error is None:
                answer.set_result(future.result())
            elif isinstance(error, (ray.exceptions.RayTaskError, ValueError, TypeError)):
                answer.set_exception(error)  # the actor lives and our call of it failed
            else:
                answer.set_exception(held.HostLost(f"{type(error).__name__}: {error}"[:300]))

        try:
            reference = getattr(self.actor, method).remote(*arguments)
        except ray.exceptions.RayError as error:
            answer.set_exception(held.HostLost(str(error)[:300]))
            return answer
        reference.future().add_done_callback(heard)
        return answer


class Cluster:
    """Finds the crew actors of a cluster through the node of this process."""

    def __init__(self, node: Node):
        self._node = node
        self._known: dict[str, RayHost] = {}

    def hosts(self) -> dict[str, RayHost]:
        """See `client.Link.hosts`."""
        try:
            names = [n for n in ray.util.list_named_actors() if n.startswith(PREFIX)]
            fresh = {n: self._known.get(n) or RayHost(ray.get_actor(n)) for n in names}
        except ValueError:
            return {}  # one ended between the two questions: the next look finds the others
        except Exception as error:
            raise held.HostLost(str(error)) from error
        self._known = fresh
        return {name.removeprefix(PREFIX): found for name, found in fresh.items()}

    def reports(self, seconds: float = 10.0) -> list[meter.Report]:
        """Ask every host for its report; one that does not answer in time is left out."""
        asked = [found.ask("report") for found in self.hosts().values()]
        done, _ = concurrent.futures.wait(asked, timeout=seconds)
        return [future.result() for future in asked if future in done and not future.exception()]

    def close(self) -> None:
        """End the node of this process."""
        self._node.close()


def join(address: str, config: desk.FleetConfig) -> client.Fleet:
    """Reach the fleet whose head node listens at an address, from a process without boxes.

    Raises:
      records.SandboxUnavailable: no head node there, or no host of the asked tier.
    """
    node = Node(address=address, name=own_name(), carries_boxes=False)
    return client.Fleet(Cluster(node), config)


def own_name() -> str:
    """Name the node of this process: its machine, then its pid."""
    return f"{os.uname().nodename}-{os.getpid()}"


def place_crew(node: Node, config: crew.CrewConfig, lease_seconds: float) -> RayHost:
    """Start the crew actor of this node. It ends with this process.

    Raises:
      records.SandboxUnavailable: no box of the asked tier can be started here.
    """
    options = {
        "name": PREFIX + node.name,
        "num_cpus": 0,
        "resources": {"sandbox": 1, f"sandbox-{node.name}": 1},
        "max_concurrency": 100_000,
        "max_restarts": -1,
    }
    placed = RayHost(
        ray.remote(host.HostCrew).options(**options).remote(config, node.name, lease_seconds)
    )
    try:
        placed.ask("report").result()
    except (held.HostLost, ray.exceptions.RayError) as error:
        raise records.SandboxUnavailable(f"The crew of {node.name} is not up: {error}") from None
    return placed
