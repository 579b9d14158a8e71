"""Run the points of a sweep as processes of this machine, and read how far they are.

A lock file in a point's folder is held by the process that runs it, also after the sweep that
started it was killed: the next sweep waits for it and never starts a second one beside it.
"""

from __future__ import annotations

import copy
import dataclasses
import fcntl
import json
import signal
import subprocess
import time
from collections.abc import Callable, Sequence

import ml_collections
from etils import epath

from spade_jax import config, gather, metrics, settings, sweep

DONE, FAILED, RUNNING, BEGUN, WAITING = "done", "failed", "running", "begun", "waiting"
LOCK, LOG, ABOUT, EXIT = "sweep.lock", "train.log", "point.json", "exit.json"
POLL_SECONDS = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """One run of a sweep."""

    name: str
    overrides: sweep.Point
    folder: epath.Path
    iterations: int  # that make it done
    command: tuple[str, ...]

    @property
    def local(self) -> bool:
        """Whether its folder lies on a disk of this machine, where locks and logs can be."""
        return "://" not in str(self.folder)


def override(values: ml_collections.ConfigDict, point: sweep.Point) -> ml_collections.ConfigDict:
    """Set the knobs of a point in a copy of the configuration.

    Raises:
      sweep.SweepError: a knob that the configuration does not have, or a value it does not take.
    """
    changed = copy.deepcopy(values)
    known = set(config.knobs(settings.RunConfig))
    for knob, value in point:
        try:
            if knob not in known:
                raise sweep.SweepError(config.explain_unknown(settings.RunConfig, knob))
            changed.update_from_flattened_dict({knob: value})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise sweep.SweepError(
                f"{knob}={value!r} of point ({sweep.describe(point)}) does not fit the "
                f"configuration: {error}."
            ) from error
    return changed


def read(point: Point) -> gather.Row:
    """Read how far a point is."""
    lines = metrics.read_metrics(point.folder / "metrics.jsonl")
    return gather.Row(name=point.name, point=point.overrides, state=_state(point), lines=lines)


def _state(point: Point) -> str:
    if _finished(point):
        return DONE
    if not point.folder.exists():
        return WAITING
    if point.local:
        held = _hold(point.folder)
        if held is None:
            return RUNNING
        held.close()
    return FAILED if _json(point.folder / EXIT).get("code", 0) != 0 else BEGUN


def _finished(point: Point) -> bool:
    results = _json(point.folder / "results.json")
    return results.get("iterations", -1) >= point.iterations or results.get("mode") == "supervised"


class Runner:
    """Owns the processes of the points that run now."""

    def __init__(self, parallel: int, say: Callable[[str], None]):
        self._parallel, self._say = parallel, say
        self._running: dict[str, tuple[Point, subprocess.Popen]] = {}
        self._stopped = 0  # signal that asked to stop

    def run(self, todo: Sequence[Point]) -> int:
        """Run every point that is not done, in order.

        Returns:
          0 if all are done, 1 if one failed, 128 + signal if the sweep was asked to stop.
        Raises:
          sweep.SweepError: the folder is a bucket.
        """
        for point in todo:
            if not point.local:
                raise sweep.SweepError(
                    f"{point.folder} is no folder of this machine: points that run here need one. "
                    "Give a local --workdir, or --emit the commands."
                )
        waiting = [point for point in todo if _state(point) != DONE]
        self._say(f"{len(todo) - len(waiting)} of {len(todo)} points are done already")
        failed: list[Point] = []
        told: set[str] = set()
        while (waiting or self._running) and not (self._stopped and not self._running):
            failed += self._reap()
            if not self._stopped:
                waiting = self._start(waiting, told)
            time.sleep(POLL_SECONDS)
        for point in failed:
            self._say(f"failed: {point.name}; see {point.folder / LOG}. The same command retries.")
        if self._stopped:
            self._say("stopped; the same command continues")
            return 128 + self._stopped
        return 1 if failed else 0

    def stop(self, received: int) -> None:
        """Pass a signal on to the points that run, and start no more."""
        self._stopped = received
        for _, process in self._running.values():
            process.send_signal(signal.SIGTERM)

    def _start(self, waiting: list[Point], told: set[str]) -> list[Point]:
        """Start points while there is room; gives those that still wait."""
        left = []
        for point in waiting:
            if len(self._running) >= self._parallel or self._stopped:
                left.append(point)
                continue
            point.folder.mkdir(parents=True, exist_ok=True)
            lock = _hold(point.folder)
            if lock is None:
                if point.name not in told:
                    self._say(f"{point.name} still runs from an earlier sweep; it is waited for")
                told.add(point.name)
                left.append(point)
                continue
            with lock:
                if not _finished(point):
                    self._launch(point, lock)
        return left

    def _launch(self, point: Point, lock) -> None:
        about = {"overrides": dict(point.overrides), "command": list(point.command)}
        (point.folder / ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")
        with open(point.folder / LOG, "ab") as log:
            process = subprocess.Popen(
                point.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock.fileno(),),
            )
        self._running[point.name] = (point, process)
        self._say(f"started {point.name}: {sweep.describe(point.overrides)}")

    def _reap(self) -> list[Point]:
        """Forget what has ended; gives the points that failed."""
        failed = []
        for name, (point, process) in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            del self._running[name]
            (point.folder / EXIT).write_text(json.dumps({"code": code}), encoding="utf-8")
            self._say(f"ended {name} with exit code {code}")
            if code != 0 and not self._stopped:
                failed.append(point)
        return failed


def _hold(folder: epath.Path):
    """Take the lock of a folder; None where a process has it. The file object holds it."""
    lock = open(folder / LOCK, "ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _json(path: epath.Path) -> dict:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
