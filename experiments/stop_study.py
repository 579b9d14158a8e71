"""Stop one of four processes of a run with SIGSTOP, in one room after another.

Shows:     the other three end by themselves within the deadline, with exit code 76, name the
           stopped one and the room it was in, and print the stacks of all their threads.
Command:   python -m experiments.stop_study --folder=runs/stop_study [--victim=3] [--kill]
Hardware:  2 CPU cores, gVisor, about 2 minutes a room.
Result:    experiments/README.md.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROCESSES = 4
ROOMS = ("start", "evaluate", "design", "rollout", "learn")
SILENCE_SECONDS = 20.0
GRACE_SECONDS = 20.0  # beyond the silence: three beats, stacks, and two cores for four processes
MISSING = 76  # spade_jax.hosts.MISSING, without loading JAX here
OVERRIDES = (  # of experiments/quickstart.py
    *("iterations=9", f"mesh.fsdp={PROCESSES}", "batch.rows_multiple=16"),
    *(f"hosts.silence_seconds={SILENCE_SECONDS}",),
    *("design.drafts=8", "rollout.environments=8", "rollout.seeds=1"),
    *("rollout.plays=4", "rollout.hinted_plays=2"),
    *("evaluate.instances=1", "evaluate.held_out_instances=1", "sandbox.boxes=1"),
)  # fmt: skip


def main() -> int:
    """Run the study; the exit code is 0 if every room ended as it should."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--victim", type=int, default=PROCESSES - 1)
    parser.add_argument("--rooms", nargs="*", default=ROOMS)
    parser.add_argument("--kill", action="store_true", help="SIGKILL in place of SIGSTOP")
    options = parser.parse_args()
    faults = []
    for room in options.rooms:
        faults += _try(options.folder, room, options.victim, options.kill)
    print("\n".join(faults) or "every process ended in time, with the name of the stopped one")
    return bool(faults)


def _try(folder: pathlib.Path, room: str, victim: int, kill: bool) -> list[str]:
    """Stop the victim in a room, or between two; give what went wrong."""
    workdir, logs = folder / "run", [folder / f"{room}.{i}.log" for i in range(PROCESSES)]
    if room == "start":
        shutil.rmtree(workdir, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    beat = workdir / "heartbeats" / f"{victim}.json"
    children = _start(workdir, logs)
    try:
        while _read(beat).get("pid") != children[victim].pid or _read(beat)["room"] != room:
            if any(child.poll() is not None for child in children):
                return [f"{room}: a process ended before it came there; see {folder}"]
            time.sleep(0.02)
        begun = time.monotonic()
        children[victim].send_signal(signal.SIGKILL if kill else signal.SIGSTOP)
        faults = []
        for index, child in enumerate(children):
            if index != victim:
                faults += _ended(child, begun, logs[index], children[victim].pid, victim, room)
        print(f"{room}: ended after {time.monotonic() - begun:.0f} s", flush=True)
        return faults
    finally:
        for child in children:
            child.kill()
            child.wait()


def _ended(child, begun: float, log: pathlib.Path, pid: int, victim: int, room: str) -> list[str]:
    left = begun + SILENCE_SECONDS + GRACE_SECONDS - time.monotonic()
    try:
        code = child.wait(timeout=max(left, 0.1))
    except subprocess.TimeoutExpired:
        return [f"{room}: {log.name}: still runs after {SILENCE_SECONDS + GRACE_SECONDS:.0f} s"]
    text, host = log.read_text(), socket.gethostname()
    wanted = {
        f"exit code {code}, not {MISSING}": code == MISSING,
        "does not name it": f"process {victim} (pid {pid} on {host}, last in {room}" in text,
        "no stacks": "Current thread" in text and text.count("Thread 0x") >= 1,
    }
    return [f"{room}: {log.name}: {fault}" for fault, held in wanted.items() if not held]


def _start(workdir: pathlib.Path, logs: list[pathlib.Path]) -> list[subprocess.Popen]:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        port = listener.getsockname()[1]
    command = ["env", "XLA_FLAGS=--xla_force_host_platform_device_count=1"]  # becomes the trainer
    command += [sys.executable, "-m", "launch.train", "--config=experiments/quickstart.py"]
    command += [f"--workdir={workdir}", *(f"--config.{knob}" for knob in OVERRIDES)]
    command += [f"--coordinator=localhost:{port}", f"--processes={PROCESSES}"]
    children = []
    for index, log in enumerate(logs):
        with log.open("w") as output:
            children.append(
                subprocess.Popen(
                    [*command, f"--process={index}"], cwd=ROOT,
                    stdout=output, stderr=subprocess.STDOUT,
                )
            )  # fmt: skip
    return children


def _read(path: pathlib.Path) -> dict:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


if __name__ == "__main__":
    sys.exit(main())
