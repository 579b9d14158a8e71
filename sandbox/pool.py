"""Where a program goes: boxes that many programs share, or a box for each.

`Shared` keeps one box per processor and replaces worn ones behind a warm spare (`keeper.py`). What
was under way when boxes died is run in a box of its own, so that it costs nobody else.
`Single` gives every program a box of its own, taken from warm spares, and never uses it again.
"""

from __future__ import annotations

import collections
import itertools
import os
import threading
import time

from sandbox import box, canary, keeper, records, start, work

STRICT = "gvisor_strict"
SUSPECT = 2  # boxes died with a program under way: the next time it is run alone
LOOK_SECONDS = 0.5  # between looks for jobs whose deadline passed while they waited for a box


def make(config, ground: start.Ground) -> Shared | Single:
    """Start the boxes of a crew and wait until they answer.

    Raises:
      records.SandboxUnavailable: they do not start, or are not clean.
    """
    kind = Single if config.tier == STRICT else Shared
    try:
        return kind(config, ground)
    except RuntimeError as error:
        raise records.SandboxUnavailable(
            start.broken_message(ground.tier, str(error), ground)
        ) from None


class Shared:
    """Boxes in which programs run beside and after each other."""

    def __init__(self, config, ground: start.Ground):
        self._window, self._ground = config.window, ground
        self._lock = threading.Lock()
        self._closed = False
        self._slots = itertools.count()
        self._retired: list[box.Box] = []
        self._deaths: collections.Counter[int] = collections.Counter()  # of boxes, by program
        self.scale = 1.0
        self.boxes = [self.new_box() for _ in range(count(config))]
        try:
            for one in self.boxes:
                one.ready.result()
            self.scale = first_scale(self.boxes[0], config.max_scale)
        except BaseException:
            self.close()
            raise
        self.keeper = keeper.Keeper(self, config)

    def new_box(self) -> box.Box:
        """Start a box that holds several programs at a time."""
        slot = next(self._slots)
        return box.Box(
            launch=self._ground.launcher(slot),
            tidy=self._ground.tidier(slot),
            tier=self._ground.tier,
            window=self._window,
            rehome=self.place,
            blame=self.blame,
        )

    def place(self, program: work.Program, lost: box.Box | None = None) -> None:
        """Give a program to the box with the least to do, another than the one that lost it."""
        with self._lock:
            if self._deaths[program.key] >= SUSPECT and not self._closed:
                self._deaths[program.key] -= 1  # it needs another death to be alone again
                home = self.new_box()
                self._retired = [b for b in self._retired if not b.finished] + [home]
                home.add(program)
                home.retire()
                return
            alive = [b for b in self.boxes if not b.failure] or self.boxes
            others = [b for b in alive if b is not lost] or alive
            min(others, key=lambda b: b.load).add(program)

    def blame(self, programs: list[work.Program]) -> None:
        """Note what was under way in a box that died."""
        with self._lock:
            self._deaths.update({program.key for program in programs})

    @property
    def recycled(self) -> collections.Counter[str]:
        """Count the boxes that were replaced, by reason."""
        return self.keeper.recycled

    def replace(self, worn: box.Box, spare: box.Box) -> None:
        """Put a warm spare in place of a worn box, which ends after its last program."""
        with self._lock:
            if self._closed or worn not in self.boxes:
                self._retired.append(spare)
                spare.retire()
                return
            self.boxes[self.boxes.index(worn)] = spare
            self._retired = [b for b in self._retired if not b.finished] + [worn]
            worn.retire()

    def close(self) -> None:
        """End every box; no more work is taken."""
        with self._lock:
            self._closed = True
        if hasattr(self, "keeper"):
            self.keeper.close()
        for one in self.boxes + self._retired:
            one.close()


class Single:
    """A box for each program; `spares` of them wait warm, as many jobs run at a time."""

    def __init__(self, config, ground: start.Ground):
        self._ground = ground
        self._lock = threading.RLock()
        self._closed = False
        self._slots = itertools.count()
        self._room = count(config)  # jobs that may start now
        self._waiting: collections.deque[work.Program] = collections.deque()
        self._stop = threading.Event()
        self._used: list[box.Box] = []
        self.boxes: list[box.Box] = []  # the warm spares
        self.recycled: collections.Counter[str] = collections.Counter()  # none: no box is reused
        self.scale = 1.0
        try:
            first = self.new_box()
            self._used.append(first)
            first.ready.result()
            self.scale = first_scale(first, config.max_scale)
            first.retire()
            self.boxes = [self.new_box() for _ in range(self._room)]
            for one in self.boxes:
                one.ready.result()
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._look, name="sandbox-queue", daemon=True).start()

    def _look(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            if self._waiting:
                self._start_waiting()

    def new_box(self) -> box.Box:
        """Start a box for one program."""
        slot = next(self._slots)
        return box.Box(
            launch=self._ground.launcher(slot),
            tidy=self._ground.tidier(slot),
            tier=self._ground.tier,
            window=1,
            rehome=self._begin,
            restored=self._ground.image is not None,
        )

    def place(self, program: work.Program) -> None:
        """Start a session at once; a job when fewer than `boxes` jobs run."""
        if program.mode == "session":
            self._begin(program)
            return
        program.future.add_done_callback(lambda _: self._job_done(program))
        with self._lock:
            self._waiting.append(program)
        self._start_waiting()

    def _begin(self, program: work.Program, lost: box.Box | None = None) -> None:
        with self._lock:
            spare = next((b for b in self.boxes if not b.failure), None)
            if spare is not None:
                self.boxes.remove(spare)
            if not self._closed:
                self.boxes.append(self.new_box())
            home = spare or self.new_box()
            self._used = [b for b in self._used if not b.finished] + [home]
        home.add(program)
        home.retire()

    def _start_waiting(self) -> None:
        while True:
            with self._lock:
                now = time.monotonic()
                late = [p for p in self._waiting if p.deadline < now]
                for program in late:
                    self._waiting.remove(program)
                ready = self._waiting and self._room > 0
                program = self._waiting.popleft() if ready else None
                self._room -= program is not None
            for one in late:
                one.give_up("its deadline passed while it waited", self._ground.tier)
            if program is None:
                return
            program.started = True
            self._begin(program)

    def _job_done(self, program: work.Program) -> None:
        with self._lock:
            if program in self._waiting:  # cancelled before it began
                self._waiting.remove(program)
            elif program.started:
                self._room += 1
        if not self._closed:
            self._start_waiting()

    def close(self) -> None:
        """End every box; what waits is given up."""
        self._stop.set()
        with self._lock:
            self._closed = True
            waiting = list(self._waiting)
            self._waiting.clear()
        for program in waiting:
            program.give_up("the sandbox is closed", self._ground.tier)
        for one in self.boxes + self._used:
            one.close()


def count(config) -> int:
    """Count the boxes: those asked for, or one for each processor."""
    return config.boxes or len(os.sched_getaffinity(0))


def first_scale(one: box.Box, highest: float) -> float:
    """Send a canary through a new box; give the scale of limits.

    Raises:
      RuntimeError: the box is not clean, or does not answer.
    """
    program = canary.program(one.tier)
    one.add(program)
    finding = canary.read(program.future.result())
    if finding.fault or finding.seconds is None:
        raise RuntimeError(finding.fault or "the canary of a new box did not come back")
    return canary.scale(finding.seconds, highest)
