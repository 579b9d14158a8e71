"""Several processes as one run: each does its share, all learn the same, the missing are named.

In: JSON-able values of this process. Out: those of every process, in order. All processes walk the
same rooms with the same state; a room divides its work by `mine` and joins it by `gather`. Device
collectives carry the bytes, so nothing but JAX's own cluster is needed. A thread writes a heartbeat
to the work directory and watches those of the others: where one stands still, or does not come to a
gather in time, the process names it, dumps the stacks of all threads, and exits with `MISSING`. The
first process serves the cluster: when it dies, JAX itself ends the others, with its own message.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from etils import epath
from jax.experimental import multihost_utils

from spade_jax import codec, files

MISSING = 76  # exit code of a process that gave up on another one
BEAT_SECONDS = 1.0
BUCKET_BEAT_SECONDS = 5.0  # a bucket takes about one write a second to an object
DONE, FAILED, LEFT = -1, -2, -3  # last beat of a process that ended; LEFT: another was missing
FOLDER = "heartbeats"
Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostsConfig:
    """How long the processes of a run wait for each other, in seconds."""

    silence_seconds: float = 60.0  # a heartbeat may stand still this long
    barrier_seconds: float = 1800.0  # the others may come this much later to a gather

    def __post_init__(self):
        if self.silence_seconds < 3 * BEAT_SECONDS or self.barrier_seconds <= 0:
            raise ValueError(
                f"hosts.silence_seconds={self.silence_seconds}, barrier_seconds="
                f"{self.barrier_seconds}: set the first to at least {3 * BEAT_SECONDS} and the "
                "second above 0."
            )


class Hosts:
    """Owns the thread that beats and watches. With one process it does nothing."""

    def __init__(self, folder: epath.PathLike, config: HostsConfig):
        self.index, self.count = jax.process_index(), jax.process_count()
        self._config = config
        self._folder = files.at(folder) / FOLDER
        self._remote = files.is_remote(self._folder)
        self._beat_seconds = BUCKET_BEAT_SECONDS if self._remote else BEAT_SECONDS
        self._began = time.time()
        self._room = "start"
        self._gathers = 0
        self._waits_since: float | None = None
        self._ended = threading.Event()
        if self.count > 1:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._beat(0)  # who dies before the first second has passed has a name too
            self._watcher = threading.Thread(target=self._watch, name="hosts", daemon=True)
            self._watcher.start()

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: Any) -> None:
        if self.count > 1 and _broke_off(error):  # another process left: the thread names it
            time.sleep(self._config.silence_seconds + 3 * self._beat_seconds)
        self.close(failed=kind is not None)

    def close(self, failed: bool = False) -> None:
        """Leave the cluster and stop beating; the first process, which serves it, leaves last.

        Args:
          failed: this process ends early; the others will end too.
        """
        if self.count == 1 or self._ended.is_set():
            return
        self._ended.set()
        self._watcher.join()
        if failed:
            if self._successor() is None:  # else this is no member any more, and its end is no news
                self._beat(FAILED)
            return
        if self.index == 0:
            self._wait_for_the_others()
        jax.distributed.shutdown()
        self._beat(DONE)

    def enter(self, room: str) -> None:
        """Say where this process is, for those that wait for it."""
        self._room = room

    def mine(self, items: Sequence[Item]) -> list[Item]:
        """Give this process's share: every count-th item."""
        return list(items[self.index :: self.count])

    def gather(self, value: Any) -> list[Any]:
        """Exchange JSON-able values; all processes call it, in the same order.

        Returns:
          the value of every process, by process index.
        """
        if self.count == 1:
            return [value]
        mine = json.dumps(value).encode()
        self._waits_since = time.monotonic()
        texts = _exchange(mine)
        self._waits_since = None
        self._gathers += 1
        return [json.loads(text) for text in texts]

    def spread(
        self, items: Sequence[Item], work: Callable[[list[Item]], list[Made]], kind: type[Made]
    ) -> list[Made]:
        """Let every process work on its share; all get what all made, in the order of the items.

        Args:
          work: share -> one result per item.
          kind: type of a result, which `codec` carries.
        """
        if self.count == 1:
            return work(list(items))
        mine = self.mine(items)
        shares = self.gather([codec.encode(made) for made in (work(mine) if mine else [])])
        whole = [shares[i % self.count][i // self.count] for i in range(len(items))]
        return [codec.decode(kind, value) for value in whole]

    def _wait_for_the_others(self) -> None:
        deadline = time.monotonic() + self._config.silence_seconds
        while time.monotonic() < deadline:
            beats = [_read(self._folder / f"{index}.json") for index in range(1, self.count)]
            if all(beat is not None and beat["beats"] == DONE for beat in beats):
                return
            time.sleep(self._beat_seconds / 10)

    def first(self, make: Callable[[], Made], read: Callable[[], Made]) -> Made:
        """Let the first process make what lies in the work directory, and the others read it."""
        made = make() if self.index == 0 else None
        self.gather(None)
        return made if self.index == 0 else read()

    # ------------------------------------------------------------ the thread

    def _watch(self) -> None:
        others = [index for index in range(self.count) if index != self.index]
        seen = {index: (None, time.monotonic()) for index in others}
        left = {index: _read(self._folder / f"{index}.json") for index in others}
        beats = 0
        while not self._ended.wait(self._beat_seconds):
            beats += 1
            with contextlib.suppress(OSError):  # a beat that is lost is silence, which others time
                if (other := self._successor()) is not None:
                    self._give_up([f"{_who(self.index, other)}: began later, in the place of this"])
                self._beat(beats)
            now = time.monotonic()
            told = {index: _read(self._folder / f"{index}.json") for index in others}
            # What lay there at the start is of an earlier run, which may have ended with an error.
            told = {i: None if _ended(b) and b == left[i] else b for i, b in told.items()}
            for index, beat in told.items():
                if beat is not None and beat["beats"] != seen[index][0]:
                    seen[index] = (beat["beats"], now)
            # Who has left for want of another is followed a silence later: by then whoever misses
            # that other one, too, has named it, and only the one that was missed is still here.
            late = [
                f"{_who(index, told[index])}: {'gone' if beats_seen == LEFT else 'silent'} for "
                f"{now - since:.0f} s"
                for index, (beats_seen, since) in seen.items()
                if beats_seen not in (DONE, FAILED) and now - since > self._config.silence_seconds
            ]
            late += [
                f"{_who(index, told[index])}: ended with an error"
                for index, (beats_seen, _) in seen.items()
                if beats_seen == FAILED
            ]
            waits = self._waits_since
            if waits is not None and now - waits > self._config.barrier_seconds:
                late += [
                    f"{_who(index, beat)}: not at the gather for {now - waits:.0f} s"
                    for index, beat in told.items()
                    if beat is None or beat["gathers"] <= self._gathers and not beat["waits"]
                ]
            if late:
                self._give_up(late, told)

    def _successor(self) -> dict | None:
        """Find the beat of a process that took this one's place while it stood still."""
        beat = _read(self._folder / f"{self.index}.json")
        return beat if beat is not None and beat.get("began", 0.0) > self._began else None

    def _beat(self, beats: int) -> None:
        beat = {
            "beats": beats,
            "room": self._room,
            "gathers": self._gathers,
            "waits": self._waits_since is not None,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "began": self._began,
        }
        path = self._folder / f"{self.index}.json"
        if self._remote:
            path.write_text(json.dumps(beat), encoding="utf-8")
            return
        temporary = self._folder / f"{self.index}.part"
        temporary.write_text(json.dumps(beat), encoding="utf-8")
        temporary.replace(path)

    def _give_up(self, late: list[str], told: dict[int, dict | None] | None = None) -> None:
        """End this process at once: its main thread may wait in a collective for ever.

        Args:
          told: beats of the others; None where another process stands in the place of this one.
        """
        print(
            f"\nProcess {self.index} of {self.count} (in {self._room}) ends: {'; '.join(late)}. "
            "Stacks of this process follow. Start all processes again with the same command: the "
            "run continues from its newest checkpoint.",
            file=sys.__stderr__,  # the process's own, whatever stands in its place just now
            flush=True,
        )
        faulthandler.dump_traceback(file=sys.__stderr__, all_threads=True)
        if told is not None:
            with contextlib.suppress(OSError):
                self._beat(LEFT)
            if self.index == 0:
                self._outstay(told)
        os._exit(MISSING)

    def _outstay(self, told: dict[int, dict | None]) -> None:
        """Serve the cluster until the others have left, too: JAX aborts those that lose it."""
        names = {index: beat["beats"] for index, beat in told.items() if beat is not None}
        # The one that was missed may live: it follows a silence after it has read of this leave.
        wait_seconds = self._config.silence_seconds + 3 * self._beat_seconds
        deadline = time.monotonic() + wait_seconds
        while names and time.monotonic() < deadline:
            time.sleep(3 * self._beat_seconds)
            for index in list(names):
                beat = _read(self._folder / f"{index}.json")
                if _ended(beat) or (beat is not None and beat["beats"] == names[index]):
                    del names[index]  # it has left, or it is the one that is missing
                elif beat is not None:
                    names[index] = beat["beats"]


def _exchange(mine: bytes) -> list[bytes]:
    """Gather bytes of different lengths; padded to powers of two, so that few shapes compile."""
    lengths = multihost_utils.process_allgather(np.array([len(mine)], np.int32)).reshape(-1)
    width = 1 << max(int(lengths.max()) - 1, 0).bit_length()
    padded = np.zeros(width, np.uint8)
    padded[: len(mine)] = np.frombuffer(mine, np.uint8)
    rows = multihost_utils.process_allgather(padded).reshape(len(lengths), width)
    return [rows[i, : lengths[i]].tobytes() for i in range(len(lengths))]


def _broke_off(error: BaseException | None) -> bool:
    """Tell whether an error, or what caused it, is a collective that lost another process."""
    while error is not None:
        if isinstance(error, jax.errors.JaxRuntimeError) or "Gloo" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _read(path: epath.Path) -> dict | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # not written yet, or just being replaced
        return None


def _ended(beat: dict | None) -> bool:
    return beat is not None and beat["beats"] in (DONE, FAILED, LEFT)


def _who(index: int, beat: dict | None) -> str:
    if beat is None:
        return f"process {index} (never seen)"
    return f"process {index} (pid {beat['pid']} on {beat['host']}, last in {beat['room']})"
