"""One box slot: a process that runs programs, the thread that talks to it, and its replacement.

All work of a slot passes through one thread. Callers append orders to its inbox and hold futures.
When the box dies, sessions in it are lost (`infra`), single programs are given back to be started
in another box.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from sandbox import frames, processes, usage, work

READY_SECONDS = 60.0
GRACE_SECONDS = 20.0  # a box that reports this long after a program's deadline is dead
POLL_SECONDS = 0.5
METER_SECONDS = 0.2  # an order that takes longer is measured on the host too
FAILED_STARTS = 3


class Box:
    """Owns one box process.

    `launch(generation)` starts it and gives the `subprocess.Popen`; `tidy(generation)` removes what
    one that worked leaves; `rehome(program, box)` takes a job that this box could not do;
    `blame(programs)` hears what was under way in a box that died. A
    `restored` box is awake already and is asked whether it is.
    """

    def __init__(
        self,
        *,
        launch: Callable[[int], subprocess.Popen],
        tidy: Callable[[int], None],
        tier: str,
        window: int,
        rehome: Callable[[work.Program, Box], None],
        blame: Callable[[list[work.Program]], None] = lambda programs: None,
        restored: bool = False,
    ):
        self.launch, self.tier, self.window = launch, tier, window
        self.tidy, self.rehome, self.blame, self.restored = tidy, rehome, blame, restored
        self.born = time.monotonic()
        self.ready: concurrent.futures.Future[dict] = concurrent.futures.Future()
        self.generation = 0
        self.given = 0  # programs so far
        self.load = 0  # sessions open and jobs waiting, for the choice of a box
        self.process: subprocess.Popen | None = None
        self.failure = ""  # why no box can be started in this slot any more
        self._inbox: collections.deque[Callable[[], None]] = collections.deque()
        self._lock = threading.RLock()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._closing = self._retiring = False
        self._up = False  # the box has said that it is ready
        self._finished = ""  # why the thread has ended
        self._next_number = 1
        self._programs: dict[int, work.Program] = {}
        self._queue: collections.deque[work.Order] = collections.deque()
        self._active: dict[int, work.Order] = {}
        self._outgoing = bytearray()
        self._decoder = frames.Decoder()
        self._thread = threading.Thread(target=self._serve, name="sandbox-box", daemon=True)
        self._thread.start()

    def submit(self, action: Callable[[], None]) -> None:
        """Have the thread of this box do something; a finished slot refuses it at once."""
        with self._lock:
            if self._finished:
                action()
                self._refuse()
                return
            self._inbox.append(action)
            try:
                os.write(self._wake_write, b"x")
            except BlockingIOError:
                pass  # the pipe is full, so the thread wakes anyway

    def add(self, program: work.Program) -> None:
        """Take a program: a job is queued, a session is opened at once."""
        program.home = self
        self.load += 1
        self.given += 1
        self.submit(lambda: self._add(program))

    def order(self, order: work.Order) -> None:
        """Queue one batch of a session."""
        self.submit(lambda: self._queue_order(order))

    def release(self, program: work.Program, why: str = "the session is closed") -> None:
        """End a program: what it was asked and has not answered is `infra`."""
        self.submit(lambda: self._release(program, why))

    def retire(self) -> None:
        """Take nothing more and end after the last program; the caller adds none from here on."""
        self._retiring = True
        self.submit(lambda: None)

    @property
    def promised_bytes(self) -> int:
        """What the programs in this box may hold together."""
        return sum(p.limits.memory_bytes for p in list(self._programs.values()))

    @property
    def finished(self) -> bool:
        """The thread has ended, and the box with it."""
        return bool(self._finished)

    def close(self) -> None:
        """Kill the box and end the thread; everything still asked of it answers `infra`."""
        self._closing = True
        self.submit(lambda: None)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=20)

    # -- the thread -----------------------------------------------------------------------------

    def _serve(self) -> None:
        failures = 0
        reason = "the thread of the box failed"  # a fault of ours: its traceback is on stderr
        try:
            while not self._closing and failures < FAILED_STARTS:
                reason = self._live_once()
                failures = 0 if self._up else failures + 1
                self._closing |= self._spent()
                if failures and not self.ready.done():
                    break  # the first box of this slot: the crew itself will not start
        finally:
            if not self._closing:
                self.failure = f"a box did not start ({reason})"
            if not self.ready.done():
                self.ready.set_exception(RuntimeError(self.failure or "closed before it was up"))
            self._fail_everything(self.failure or "the sandbox is closed")

    def _live_once(self) -> str:
        """Start a box and serve it until it dies; say why it did."""
        self.generation += 1
        self._up = False
        try:
            self.process = self.launch(self.generation)
        except OSError as error:
            return f"the process cannot be started: {error}"
        self._decoder, self._outgoing = frames.Decoder(), bytearray()
        if self.restored:
            self._send({"do": "ping", "id": 0})
        os.set_blocking(self.process.stdin.fileno(), False)
        os.set_blocking(self.process.stdout.fileno(), False)
        try:
            reason = self._converse()
        except frames.ProtocolError as error:
            reason = f"protocol error: {error}"
        finally:
            processes.stop(self.process)
            if self._up:
                self.tidy(self.generation)
        if self._up and not self._closing:
            print(f"sandbox: a box died ({reason}); it is replaced", file=sys.stderr)
        self._lose(f"the box died: {reason}")
        return reason

    def _converse(self) -> str:
        process, born = self.process, time.monotonic()
        inlet, outlet = process.stdin.fileno(), process.stdout.fileno()
        while not self._closing:
            self._take_inbox()
            self._expire()
            if self._spent():
                self._closing = True
                break
            if self._up:
                self._dispatch()
            events = self._wait(inlet, outlet)
            self._start_meters()
            if self._outgoing and inlet in events:
                try:
                    del self._outgoing[: os.write(inlet, self._outgoing[: 1 << 20])]
                except (BlockingIOError, BrokenPipeError):
                    pass
            if outlet in events:
                chunk = os.read(outlet, 1 << 20)
                if not chunk:
                    return processes.how_it_ended(process)
                for head, payload in self._decoder.feed(chunk):
                    if head["event"] == "broken":
                        return f"broken: {head.get('detail')}"
                    self._hear(head, payload)
            reason = self._overdue(born)
            if reason:
                return reason
        return "closed"

    def _spent(self) -> bool:
        """A retired box has done all it was given."""
        return self._retiring and not self._programs and not self._inbox

    def _wait(self, inlet: int, outlet: int) -> set[int]:
        poll = select.poll()
        poll.register(outlet, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        if self._outgoing:
            poll.register(inlet, select.POLLOUT)
        unmetered = any(order.meter is None for order in self._active.values())
        seconds = METER_SECONDS if unmetered else POLL_SECONDS
        events = {fd for fd, _ in poll.poll(seconds * 1000)}
        if self._wake_read in events:
            try:
                os.read(self._wake_read, 4096)
            except BlockingIOError:
                pass
        return events

    def _start_meters(self) -> None:
        """Note what the box got of the host's processors when an order turns out to be long."""
        now = time.monotonic()
        late = [
            order
            for order in self._active.values()
            if order.meter is None and now - order.sent > METER_SECONDS
        ]
        if late:
            meter = (now, usage.tree_seconds(self.process.pid))
            for order in late:
                order.meter = meter

    def _measured(self, order: work.Order | None, report: work.Report) -> work.Report:
        """Put what the host gave in place of what gVisor charged, for a long order."""
        if order is None or order.meter is None or not self.tier.startswith("gvisor"):
            return report
        seconds = time.monotonic() - order.meter[0]
        if seconds < METER_SECONDS:
            return report
        got = usage.tree_seconds(self.process.pid) - order.meter[1]
        box_got = got / seconds * report.wall
        return dataclasses.replace(
            report, cpu=usage.share(report.charged, report.box_charged, box_got)
        )

    def _take_inbox(self) -> None:
        while self._inbox:
            with self._lock:
                action = self._inbox.popleft()
            action()

    def _overdue(self, born: float) -> str:
        now = time.monotonic()
        if not self._up and now - born > READY_SECONDS:
            return f"not ready after {READY_SECONDS} s"
        for order in self._active.values():
            if now - order.sent > order.wall + GRACE_SECONDS:
                return f"no report {GRACE_SECONDS} s after a deadline"
        return ""

    # -- orders ---------------------------------------------------------------------------------

    def _add(self, program: work.Program) -> None:
        program.number, program.generation = self._next_number, self.generation
        self._next_number += 1
        self._programs[program.number] = program
        if program.mode == "session":
            self._send(program.spawn_head(), program.first, program.stdin)
        else:
            self._queue_order(program.job())

    def _queue_order(self, order: work.Order) -> None:
        if order.program.lost:
            order.program.fail(order, self.tier)
        else:
            self._queue.append(order)

    def _dispatch(self) -> None:
        """Send queued orders while the window is open; one batch at a time for a session."""
        waiting: collections.deque[work.Order] = collections.deque()
        while self._queue and len(self._active) < self.window:
            order = self._queue.popleft()
            program = order.program
            if program.lost:
                program.fail(order, self.tier)
            elif program.number in self._active:
                waiting.append(order)
            else:
                order.sent = time.monotonic()
                self._active[program.number] = order
                if program.mode == "session":
                    self._send(program.batch_head(order), order.payload)
                else:
                    self._send(program.spawn_head(), program.first, program.stdin)
        self._queue.extendleft(reversed(waiting))

    def _send(self, head: dict, *parts: bytes) -> None:
        self._outgoing += frames.encode(head, *parts)

    def _release(self, program: work.Program, why: str) -> None:
        if not program.lost and self._programs.get(program.number) is program:
            self._send({"do": "close", "id": program.number})
            self._lose_program(program, "infra", why)

    def _expire(self) -> None:
        """Give up what is not answered by its deadline, whatever held it up."""
        now = time.monotonic()
        for order in [o for o in (*self._queue, *self._active.values()) if now > o.deadline]:
            where = "while it ran" if order.sent else "while it waited"
            self._release(order.program, f"its deadline passed {where}: the sandbox was too busy")

    # -- reports --------------------------------------------------------------------------------

    def _hear(self, head: dict, payload: bytes) -> None:
        event = head["event"]
        if event == "ready" or (event == "pong" and self.restored):
            self._up = True
            if not self.ready.done():
                self.ready.set_result(head)
            return
        number = head.get("id")
        if type(number) is not int:
            raise frames.ProtocolError(f"a report of program {number!r:.50}")
        program = self._programs.get(number)
        if program is None:
            return  # a closed session that still had something to say
        order = self._active.get(program.number)
        most = program.lines if order is None or program.mode != "session" else order.requests
        report = self._measured(order, work.read_report(head, payload, most + 1))
        if event == "batch" and order and program.mode == "session":
            del self._active[program.number]
            fault = program.finish_batch(order, report, self.tier)
            if fault:
                self._send({"do": "close", "id": program.number})
                self._lose_program(program, "crash", fault)
        elif event == "end":
            self._active.pop(program.number, None)
            if program.may_retry(report):
                program.tries_left -= 1
                self._give_back([program])
                return
            program.end(order, report, self.tier)
            self._lose_program(program, program.lost or "infra", program.lost_detail)

    def _lose_program(self, program: work.Program, status: str, detail: str) -> None:
        """Forget a program; orders still waiting for it fail with `status`."""
        self._programs.pop(program.number, None)
        self.load -= 1
        program.lost, program.lost_detail = status, detail
        active = self._active.pop(program.number, None)
        if active:
            program.fail(active, self.tier)
        for order in [o for o in self._queue if o.program is program]:
            self._queue.remove(order)
            program.fail(order, self.tier)

    def _lose(self, reason: str) -> None:
        """The box is gone: sessions are lost, jobs go elsewhere while they have tries left."""
        again = []
        if self._up and not self._closing:
            self.blame([order.program for order in self._active.values()])
        for program in list(self._programs.values()):
            if program.mode == "session" or program.tries_left <= 0 or self._closing:
                self._lose_program(program, "infra", reason)
            else:
                program.tries_left -= program.number in self._active
                again.append(program)
        self._give_back(again)

    def _give_back(self, jobs: list[work.Program]) -> None:
        """Forget jobs and have them started in another box."""
        for program in jobs:
            del self._programs[program.number]
            self._active.pop(program.number, None)
            for order in [o for o in self._queue if o.program is program]:
                self._queue.remove(order)
            self.load -= 1
        for program in jobs:
            self.rehome(program, self)

    def _fail_everything(self, reason: str) -> None:
        with self._lock:
            self._finished = reason
            os.close(self._wake_read)
            os.close(self._wake_write)
        self._take_inbox()
        self._refuse()

    def _refuse(self) -> None:
        """Answer `infra` to everything this finished slot still holds."""
        for program in list(self._programs.values()):
            self._lose_program(program, "infra", self._finished)
