"""The keeper of shared boxes: finds the worn ones and replaces each behind a warm spare.

A box is worn after so many programs, at an age, when its memory has grown, or when a canary finds
something in it. The canaries also keep the scale of limits up to date.
"""

from __future__ import annotations

import collections
import concurrent.futures
import sys
import threading
import time

from sandbox import box, canary, usage

LOOK_SECONDS = 2.0
MEMORY_SECONDS = 10.0  # between looks at the memory of boxes
CANARY_SECONDS = 30.0  # between canaries of a box that ran programs
CANARY_PROGRAMS = 200
READY_SECONDS = 60.0


class Keeper:
    """Owns the thread that looks after the boxes of a `pool.Shared`."""

    def __init__(self, boxes_of, config):
        self._pool, self._config = boxes_of, config
        self._stop = threading.Event()
        self._next_memory = 0.0
        self._first_bytes: dict[int, int] = {}  # pid of a box -> memory when it was first seen
        self._last_canary: dict[box.Box, tuple[int, float]] = {}  # programs and clock at the last
        self.recycled: collections.Counter[str] = collections.Counter()  # reason -> boxes
        self._thread = threading.Thread(target=self._watch, name="sandbox-keeper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking after the boxes."""
        self._stop.set()
        self._thread.join(timeout=READY_SECONDS)

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            memory_due = time.monotonic() >= self._next_memory
            if memory_due:
                self._next_memory = time.monotonic() + MEMORY_SECONDS
            for one in list(self._pool.boxes):
                reason = self._worn(one, memory_due)
                if reason and not self._stop.is_set():
                    self._recycle(one, reason)

    def _worn(self, one: box.Box, memory_due: bool) -> str:
        """Why a box must be replaced; empty where it need not be."""
        config = self._config
        if one.given >= config.recycle_programs:
            return "programs"
        if time.monotonic() - one.born > config.recycle_seconds:
            return "age"
        if memory_due and self._growth(one) > config.recycle_growth_bytes:
            return "memory"
        return "canary" if self._canary_due(one) and self._canary_misses(one) else ""

    def _growth(self, one: box.Box) -> int:
        """Bytes that a box holds beyond its first size and what its programs may hold."""
        process = one.process
        if process is None or process.poll() is not None:
            return 0
        held = usage.tree_bytes(process.pid)
        first = self._first_bytes.setdefault(process.pid, held)
        return held - first - one.promised_bytes

    def _canary_due(self, one: box.Box) -> bool:
        given, when = self._last_canary.setdefault(one, (one.given, time.monotonic()))
        late = time.monotonic() - when > CANARY_SECONDS
        return one.given - given >= CANARY_PROGRAMS or (late and one.given > given)

    def _canary_misses(self, one: box.Box) -> bool:
        program = canary.program(one.tier)
        one.add(program)
        self._last_canary[one] = (one.given, time.monotonic())
        try:
            finding = canary.read(program.future.result(timeout=READY_SECONDS))
        except concurrent.futures.TimeoutError:
            return False  # a box so busy has its own deadlines
        if finding.fault:
            print(f"sandbox: {finding.fault}; the box is replaced", file=sys.stderr)
        if finding.seconds is not None:
            now = canary.scale(finding.seconds, self._config.max_scale)
            self._pool.scale = (self._pool.scale + now) / 2
        return bool(finding.fault)

    def _recycle(self, worn: box.Box, reason: str) -> None:
        """Start a spare, wait until it is warm, and put it in place of the worn box."""
        spare = self._pool.new_box()
        try:
            spare.ready.result(timeout=READY_SECONDS)
        except (RuntimeError, concurrent.futures.TimeoutError) as error:
            print(f"sandbox: no spare for a worn box ({error}); it stays", file=sys.stderr)
            spare.close()
            return
        self._first_bytes.pop(worn.process.pid, None)
        self._last_canary.pop(worn, None)
        self.recycled[reason] += 1
        self._pool.replace(worn, spare)
