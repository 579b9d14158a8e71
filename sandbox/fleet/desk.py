"""Who does what: the state of one client of the fleet, without threads.

Programs and calls wait here until a host has room, so that a host that joins takes its part at
once; when a host is lost they go to another. A session that has answered stays on its host to the
end; when that is lost, all that is asked of it answers `infra`. What a lost host says later is not
heard, so that everything asked is answered once. `client.Fleet` owns the one thread that calls a
desk.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from sandbox import crew, records, work
from sandbox.fleet import meter

NOBODY = "no host of the fleet took it"
CLOSED = "the fleet is closed"


class HostLost(Exception):
    """A host did not answer: it is gone, or cannot be reached."""


class Host(Protocol):
    """A `host.HostCrew` somewhere."""

    def ask(self, method: str, *arguments: Any) -> concurrent.futures.Future:
        """Call a method; the future raises HostLost where the host is gone."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FleetConfig:
    """How this process uses the fleet."""

    tier: str = "gvisor"  # hosts of another tier are not used
    packages: tuple[str, ...] = ()  # hosts that do not lend all of them are not used
    waiting: int = 4096  # programs and calls unanswered; then callers wait
    moves: int = 3  # a program is tried on so many further hosts before it answers `infra`
    renew_seconds: float = 2.0  # between looks at the hosts; well below the lease that they give
    silent_seconds: float = 20.0  # a host that does not answer for longer is lost
    join_seconds: float = 60.0  # how long work waits while there is no host

    def __post_init__(self):
        if self.tier not in crew.TIERS:
            raise ValueError(f"fleet.tier={self.tier!r}: choose one of {', '.join(crew.TIERS)}.")
        if self.waiting < 1 or self.moves < 0:
            raise ValueError(
                f"fleet.waiting={self.waiting}, fleet.moves={self.moves}: set waiting >= 1 and "
                "moves >= 0."
            )
        for name in ("renew_seconds", "silent_seconds", "join_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"fleet.{name}={getattr(self, name)}: set it above 0.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Losses:
    """What the loss of hosts has cost this client."""

    hosts: int = 0
    moved: int = 0  # programs, calls and sessions without an answer yet, started again elsewhere
    sessions: int = 0  # under way on those hosts: what is asked of them answers `infra`
    requests: int = 0  # of those sessions, unanswered when their host was lost


@dataclasses.dataclass(eq=False, kw_only=True)
class Job:
    """A program or a call."""

    method: str
    arguments: tuple
    limits: records.Limits
    future: concurrent.futures.Future
    since: float  # when it began to wait for a host
    deadline: float  # it is answered by then
    moves: int = 0

    def limits_left(self, now: float) -> records.Limits:
        """The limits, with what is left of the deadline."""
        left = max(self.deadline - now, self.limits.wall_seconds)
        return dataclasses.replace(self.limits, deadline_seconds=left)


@dataclasses.dataclass(eq=False, kw_only=True)
class Batch:
    """Requests of a session that are sent together."""

    seat: Seat
    requests: list[dict]
    future: concurrent.futures.Future
    since: float


@dataclasses.dataclass(eq=False, kw_only=True)
class Seat:
    """A session: where it lives and what it is asked."""

    number: int
    opening: dict  # the arguments of `crew.Crew.open`
    begun: bool = False  # it has answered: its state is on its host
    moves: int = 0
    home: Home | None = None
    active: Batch | None = None
    waiting: collections.deque[Batch] = dataclasses.field(default_factory=collections.deque)
    lost: str = ""  # why it answers nothing any more


@dataclasses.dataclass(eq=False, kw_only=True)
class Home:
    """A host in use."""

    name: str
    host: Host
    report: meter.Report
    heard: float
    asking: bool = False  # a renewal is under way
    jobs: set[Job] = dataclasses.field(default_factory=set)  # there now
    seats: set[Seat] = dataclasses.field(default_factory=set)

    @property
    def load(self) -> float:
        """What it has to do, per box."""
        return (len(self.jobs) + len(self.seats)) / self.report.boxes

    @property
    def full(self) -> bool:
        """It holds as many programs as its boxes run at once, and one more each."""
        return len(self.jobs) >= self.report.boxes * (self.report.window + 1)


class Desk:
    """Gives work to hosts.

    Args:
      name: of this client.
      post: has an action done later by the thread that calls this desk.
    """

    def __init__(self, config: FleetConfig, name: str, post: Callable[[Callable[[], None]], None]):
        self.config, self.name, self._post = config, name, post
        self.homes: dict[str, Home] = {}
        self.refused: dict[str, str] = {}  # host -> why it is not used
        self.losses = Losses()
        self._courted: dict[str, float] = {}  # asked for their first report, since when
        self._jobs: collections.deque[Job] = collections.deque()
        self._openings: collections.deque[Batch] = collections.deque()  # first ones, without host

    # -- asked by callers --------------------------------------------------------------------------

    def add(self, job: Job) -> None:
        """Take a program or a call."""
        self._jobs.append(job)

    def submit(self, batch: Batch) -> None:
        """Take a batch of a session; the first one chooses its host."""
        seat = batch.seat
        if seat.lost:
            work.resolve(batch.future, [infra(seat.lost)] * len(batch.requests))
            return
        seat.waiting.append(batch)
        if seat.home is not None:
            self._send(seat)
        elif len(seat.waiting) == 1:
            self._openings.append(batch)

    def release(self, seat: Seat) -> None:
        """Close a session."""
        if seat.lost:
            return
        home = seat.home
        self._lose_seat(seat, "the session is closed")
        if home is not None:
            self._ask(home.host, ("release", self.name, seat.number), lambda *heard: None)

    def dispatch(self) -> None:
        """Send what waits while hosts have room."""
        homes = [home for home in self.homes.values() if not home.report.leaving]
        while self._openings and homes:
            seat = self._openings.popleft().seat
            if not seat.lost:
                seat.home = min(homes, key=lambda home: home.load)
                seat.home.seats.add(seat)
                self._send(seat)
        while self._jobs:
            free = [home for home in homes if not home.full]
            if not free:
                break
            job = self._jobs.popleft()
            if not job.future.cancelled():
                home = min(free, key=lambda home: home.load)
                home.jobs.add(job)
                asked = (job.method, *job.arguments, job.limits_left(time.monotonic()))
                self._ask(home.host, asked, self._ran, job, home)

    def end(self) -> None:
        """Say good-bye to the hosts and answer everything."""
        homes, self.homes = list(self.homes.values()), {}
        for home in homes:
            home.host.ask("farewell", self.name)
            for job in home.jobs:
                work.resolve(job.future, infra(CLOSED))
            for seat in list(home.seats):
                self._lose_seat(seat, CLOSED)
        self.give_up(float("inf"), CLOSED)

    def give_up(self, before: float, reason: str) -> None:
        """Answer what began to wait for a host before a time."""
        while self._jobs and self._jobs[0].since < before:
            work.resolve(self._jobs.popleft().future, infra(reason))
        while self._openings and self._openings[0].since < before:
            self._lose_seat(self._openings.popleft().seat, reason)

    # -- hosts -------------------------------------------------------------------------------------

    def court(self, found: dict[str, Host]) -> None:
        """Ask hosts that are not in use for a report; who answers is taken."""
        now = time.monotonic()
        for name, host in found.items():
            asked = self._courted.get(name, now - self.config.silent_seconds)
            if name not in self.homes and now - asked >= self.config.silent_seconds:
                self._courted[name] = now
                self._ask(host, ("renew", self.name, True), self._joined, name, host)

    def tick(self, now: float) -> None:
        """Renew leases; give up on hosts that are silent, and on work that no host took."""
        for home in list(self.homes.values()):
            silent = now - home.heard
            if home.asking and silent > self.config.silent_seconds:
                self._lose(home, f"it has not answered for {silent:.0f} s")
            elif not home.asking and silent > self.config.renew_seconds:
                home.asking = True
                self._ask(home.host, ("renew", self.name, False), self._renewed, home)
        if not self.homes:
            self.give_up(now - self.config.join_seconds, NOBODY)
        for job in [job for job in self._jobs if job.deadline < now + job.limits.wall_seconds]:
            self._jobs.remove(job)
            work.resolve(job.future, infra("too little was left of its deadline when it waited"))

    def _ask(self, host: Host, asked: tuple, then: Callable, *context: Any) -> None:
        """Call a host; its answer comes to `then(answer, error, *context)` in the desk's thread."""

        def heard(future: concurrent.futures.Future) -> None:
            error = future.exception()
            answer = None if error else future.result()
            self._post(lambda: then(answer, error, *context))

        host.ask(*asked).add_done_callback(heard)

    def _joined(
        self, report: meter.Report | None, error: Exception | None, name: str, host: Host
    ) -> None:
        self._courted.pop(name, None)
        if error is not None or name in self.homes or report.leaving:
            return
        why = self._unfit(report)
        if not why:
            self.homes[name] = Home(name=name, host=host, report=report, heard=time.monotonic())
        elif self.refused.get(name) != why:
            print(f"sandbox: host {name} is not used: {why}", file=sys.stderr)
            self.refused[name] = why

    def _unfit(self, report: meter.Report) -> str:
        """Why a host cannot do this client's work; empty if it can."""
        if report.tier.split("-")[0] != self.config.tier:
            return f"its tier is {report.tier}, asked for is {self.config.tier}"
        missing = set(self.config.packages) - set(report.packages)
        return f"it does not lend {', '.join(sorted(missing))}" if missing else ""

    def _renewed(self, report: meter.Report | None, error: Exception | None, home: Home) -> None:
        home.asking = False
        if error is not None:
            self._lose(home, str(error))
        else:
            home.report, home.heard = report, time.monotonic()

    def _lose(self, home: Home, reason: str) -> None:
        """Take a host out of use: its programs move, its sessions are lost."""
        if self.homes.get(home.name) is not home:
            return
        del self.homes[home.name]
        if home.report.leaving and not home.jobs and not home.seats:
            return  # it has left
        print(f"sandbox: host {home.name} is lost: {reason}", file=sys.stderr)
        reason = f"host {home.name} is lost: {reason}"
        self._count(hosts=1)
        jobs, home.jobs = home.jobs, set()
        for job in jobs:
            self._move(job, reason)
        for seat in list(home.seats):
            if seat.begun or seat.moves >= self.config.moves:
                unanswered = [*filter(None, [seat.active]), *seat.waiting]
                self._count(sessions=1, requests=sum(len(b.requests) for b in unanswered))
                self._lose_seat(seat, reason)
            else:
                self._move_seat(seat)

    def _count(self, **more: int) -> None:
        now = dataclasses.asdict(self.losses)
        self.losses = Losses(**{name: now[name] + more.get(name, 0) for name in now})

    # -- programs and calls ------------------------------------------------------------------------

    def _ran(
        self, outcome: records.Outcome | None, error: Exception | None, job: Job, home: Home
    ) -> None:
        if job not in home.jobs:
            return  # it was moved since
        home.jobs.remove(job)
        if isinstance(error, HostLost):
            self._move(job, str(error))
            self._lose(home, str(error))
        elif error is not None:
            refuse(job.future, error)
        elif outcome.status == records.INFRA:
            self._move(job, outcome.detail)
        else:
            work.resolve(job.future, outcome)

    def _move(self, job: Job, reason: str) -> None:
        """Try a program on another host, or report that the sandbox failed it."""
        if job.moves >= self.config.moves:
            work.resolve(job.future, infra(f"tried {job.moves + 1} times; the last: {reason}"))
            return
        job.moves += 1
        job.since = time.monotonic()
        self._count(moved=1)
        self._jobs.appendleft(job)

    # -- sessions ----------------------------------------------------------------------------------

    def _send(self, seat: Seat) -> None:
        """Send the next batch of a session where none is under way: hosts promise no order."""
        if seat.active is not None or not seat.waiting:
            return
        seat.active = batch = seat.waiting.popleft()
        opening = None if seat.begun else seat.opening
        asked = ("batch", self.name, seat.number, opening, batch.requests)
        self._ask(seat.home.host, asked, self._answered, batch)

    def _answered(
        self, outcomes: list[records.Outcome] | None, error: Exception | None, batch: Batch
    ) -> None:
        seat = batch.seat
        if seat.active is not batch:
            return  # the session was lost or closed since
        if isinstance(error, HostLost):
            self._lose(seat.home, str(error))
            return
        seat.active, seat.begun = None, True
        if error is not None:
            refuse(batch.future, error)
            self._lose_seat(seat, f"the host failed: {error}")
            return
        work.resolve(batch.future, outcomes)
        self._send(seat)

    def _move_seat(self, seat: Seat) -> None:
        """Begin a session without an answer on another host: there is no state to lose."""
        seat.home.seats.discard(seat)
        batch, seat.active, seat.home = seat.active, None, None
        seat.waiting.appendleft(batch)
        seat.moves += 1
        batch.since = time.monotonic()
        self._count(moved=1)
        self._openings.append(batch)

    def _lose_seat(self, seat: Seat, reason: str) -> None:
        """Answer all that was asked of a session with `infra`, now and later."""
        seat.lost = seat.lost or reason
        batches, seat.active = [seat.active, *seat.waiting], None
        seat.waiting.clear()
        if seat.home is not None:
            seat.home.seats.discard(seat)
        for batch in batches:
            if batch is not None:
                work.resolve(batch.future, [infra(reason)] * len(batch.requests))


def infra(detail: str) -> records.Outcome:
    return records.Outcome(status=records.INFRA, detail=detail)


def refuse(future: concurrent.futures.Future, error: Exception) -> None:
    """Raise a fault of ours where the answer is awaited."""
    if not future.done() and future.set_running_or_notify_cancel():
        future.set_exception(error)
