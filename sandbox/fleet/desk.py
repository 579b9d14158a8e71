"""Who does what: the state of one client of the fleet, without threads.

Programs and calls wait here until a host has room, so that a host that joins takes its part at
once; when a host is lost or fails them they go to another. So does a session without an answer. One
that has answered stays on its host to the end; when that is lost or fails it, all that is asked of
it answers `infra`. What a lost host says later is not heard, so that everything asked is answered
once. A loss is counted where it is told. `client.Fleet` owns the one thread that calls a desk.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import itertools
import sys
import time
from collections.abc import Callable
from typing import Any

from sandbox import crew, records, work
from sandbox.fleet import held, meter

RELEASED = "the session is closed"
NOBODY = "no host of the fleet took it"
CLOSED = "the fleet is closed"


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


class Desk:
    """Gives work to hosts.

    Args:
      name: of this client.
      post: has an action done later by the thread that calls this desk.
    """

    def __init__(self, config: FleetConfig, name: str, post: Callable[[Callable[[], None]], None]):
        self.config, self.name, self._post = config, name, post
        self.homes: dict[str, held.Home] = {}
        self.refused: dict[str, str] = {}  # host -> why it is not used
        self.losses = held.Losses()
        self._numbers = itertools.count(
            -1, -1
        )  # of moved sessions; a client's own are not negative
        self._courted: dict[str, float] = {}  # asked for their first report, since when
        self._jobs: collections.deque[held.Job] = collections.deque()
        self._openings: collections.deque[held.Batch] = (
            collections.deque()
        )  # first ones, without host

    # -- asked by callers --------------------------------------------------------------------------

    def add(self, job: held.Job) -> None:
        """Take a program or a call."""
        self._jobs.append(job)

    def submit(self, batch: held.Batch) -> None:
        """Take a batch of a session; the first one chooses its host."""
        seat = batch.seat
        if seat.lost:
            self._deny(batch)
            return
        seat.waiting.append(batch)
        if seat.home is not None:
            self._send(seat)
        elif len(seat.waiting) == 1:
            self._openings.append(batch)

    def release(self, seat: held.Seat) -> None:
        """Close a session."""
        if seat.lost:
            return
        self._vacate(seat)
        self._lose_seat(seat, RELEASED)

    def dispatch(self) -> None:
        """Send what waits while hosts have room."""
        homes = [home for home in self.homes.values() if not home.report.leaving]
        while self._openings and homes:
            seat = self._openings.popleft().seat
            if not seat.lost:
                seat.home = min(untried(homes, seat), key=lambda home: home.load)
                seat.home.seats.add(seat)
                self._send(seat)
        waiting: list[held.Job] = []
        while self._jobs and not all(home.full for home in homes):
            job = self._jobs.popleft()
            free = [home for home in untried(homes, job) if not home.full]
            if job.future.cancelled():
                continue
            if not free:
                waiting.append(job)
                continue
            home = min(free, key=lambda home: home.load)
            home.jobs.add(job)
            asked = (job.method, *job.arguments, job.limits_left(time.monotonic()))
            self._ask(home.host, asked, self._ran, job, home)
        self._jobs.extendleft(reversed(waiting))

    def end(self) -> None:
        """Say good-bye to the hosts and answer everything."""
        homes, self.homes = list(self.homes.values()), {}
        for home in homes:
            home.host.ask("farewell", self.name)
            for job in home.jobs:
                self._deny_job(job, CLOSED)
            for seat in list(home.seats):
                self._lose_seat(seat, CLOSED)
        self.give_up(float("inf"), CLOSED)

    def give_up(self, before: float, reason: str) -> None:
        """Answer what began to wait for a host before a time."""
        while self._jobs and self._jobs[0].since < before:
            self._deny_job(self._jobs.popleft(), reason)
        while self._openings and self._openings[0].since < before:
            self._lose_seat(self._openings.popleft().seat, reason)

    # -- hosts -------------------------------------------------------------------------------------

    def court(self, found: dict[str, held.Host]) -> None:
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
            self._deny_job(job, "too little was left of its deadline when it waited")

    def _ask(self, host: held.Host, asked: tuple, then: Callable, *context: Any) -> None:
        """Call a host; its answer comes to `then(answer, error, *context)` in the desk's thread."""

        def heard(future: concurrent.futures.Future) -> None:
            error = future.exception()
            answer = None if error else future.result()
            self._post(lambda: then(answer, error, *context))

        host.ask(*asked).add_done_callback(heard)

    def _joined(
        self, report: meter.Report | None, error: Exception | None, name: str, host: held.Host
    ) -> None:
        self._courted.pop(name, None)
        if error is not None or name in self.homes or report.leaving:
            return
        why = self._unfit(report)
        if not why:
            self.homes[name] = held.Home(
                name=name, host=host, report=report, heard=time.monotonic()
            )
        elif self.refused.get(name) != why:
            print(f"sandbox: host {name} is not used: {why}", file=sys.stderr)
            self.refused[name] = why

    def _unfit(self, report: meter.Report) -> str:
        """Why a host cannot do this client's work; empty if it can."""
        if report.tier.split("-")[0] != self.config.tier:
            return f"its tier is {report.tier}, asked for is {self.config.tier}"
        missing = set(self.config.packages) - set(report.packages)
        return f"it does not lend {', '.join(sorted(missing))}" if missing else ""

    def _renewed(
        self, report: meter.Report | None, error: Exception | None, home: held.Home
    ) -> None:
        home.asking = False
        if error is not None:
            self._lose(home, str(error))
        else:
            home.report, home.heard = report, time.monotonic()

    def _lose(self, home: held.Home, reason: str) -> None:
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
            self._move(job, home, reason)
        for seat in list(home.seats):
            if self._may_move(seat):
                self._move_seat(seat)
            else:
                self._lose_seat(seat, reason)

    def _count(self, **more: int) -> None:
        now = dataclasses.asdict(self.losses)
        self.losses = held.Losses(**{name: now[name] + more.get(name, 0) for name in now})

    # -- programs and calls ------------------------------------------------------------------------

    def _ran(
        self,
        outcome: records.Outcome | None,
        error: Exception | None,
        job: held.Job,
        home: held.Home,
    ) -> None:
        if job not in home.jobs:
            return  # it was moved since
        home.jobs.remove(job)
        if isinstance(error, held.HostLost):
            self._move(job, home, str(error))
            self._lose(home, str(error))
        elif error is not None:
            held.refuse(job.future, error)
        elif outcome.status == records.INFRA:
            self._move(job, home, outcome.detail)
        else:
            work.resolve(job.future, outcome)

    def _move(self, job: held.Job, home: held.Home, reason: str) -> None:
        """Try a program on another host, or report that the sandbox failed it."""
        if job.moves >= self.config.moves:
            self._deny_job(job, f"tried {job.moves + 1} times; the last: {reason}")
            return
        job.moves += 1
        job.tried.add(home.name)
        job.since = time.monotonic()
        self._count(moved=1)
        self._jobs.appendleft(job)

    def _deny_job(self, job: held.Job, reason: str) -> None:
        if work.resolve(job.future, held.infra(reason)) and reason != CLOSED:
            self._count(programs=1)

    # -- sessions ----------------------------------------------------------------------------------

    def _send(self, seat: held.Seat) -> None:
        """Send the next batch of a session where none is under way: hosts promise no order."""
        if seat.active is not None or not seat.waiting:
            return
        seat.active = batch = seat.waiting.popleft()
        opening = None if seat.begun else seat.opening
        asked = ("batch", self.name, seat.number, opening, batch.requests)
        self._ask(seat.home.host, asked, self._answered, batch, seat.home)

    def _answered(
        self,
        outcomes: list[records.Outcome] | None,
        error: Exception | None,
        batch: held.Batch,
        home: held.Home,
    ) -> None:
        seat = batch.seat
        if seat.active is not batch or seat.home is not home:
            return  # the session was lost, closed or moved since
        if isinstance(error, held.HostLost):
            self._lose(seat.home, str(error))
            return
        if error is not None:
            held.refuse(batch.future, error)
            self._vacate(seat)
            self._lose_seat(seat, f"the host failed: {error}")
            return
        failed = [outcome for outcome in outcomes if outcome.status == records.INFRA]
        if failed and len(failed) == len(outcomes) and self._may_move(seat):
            self._vacate(seat)
            self._move_seat(seat)
            return
        seat.active, seat.begun = None, True
        if failed:
            self._vacate(seat)
            self._tell(batch, outcomes, len(failed))
            self._lose_seat(seat, failed[-1].detail)
            return
        work.resolve(batch.future, outcomes)
        self._send(seat)

    def _may_move(self, seat: held.Seat) -> bool:
        return not seat.begun and seat.moves < self.config.moves

    def _move_seat(self, seat: held.Seat) -> None:
        """Begin a session without an answer on another host: there is no state to lose."""
        seat.home.seats.discard(seat)
        seat.tried.add(seat.home.name)
        batch, seat.active, seat.home = seat.active, None, None
        seat.waiting.appendleft(batch)
        seat.number = next(
            self._numbers
        )  # a host may read the end of the old one after this begins
        seat.moves += 1
        batch.since = time.monotonic()
        self._count(moved=1)
        self._openings.append(batch)

    def _vacate(self, seat: held.Seat) -> None:
        """Have the host of a session end it."""
        if seat.home is not None:
            asked = ("release", self.name, seat.number)
            self._ask(seat.home.host, asked, lambda *heard: None)

    def _lose_seat(self, seat: held.Seat, reason: str) -> None:
        """Answer all that was asked of a session with `infra`, now and later."""
        seat.lost = seat.lost or reason
        batches, seat.active = [seat.active, *seat.waiting], None
        seat.waiting.clear()
        if seat.home is not None:
            seat.home.seats.discard(seat)
        for batch in filter(None, batches):
            self._deny(batch)

    def _deny(self, batch: held.Batch) -> None:
        requests = len(batch.requests)
        self._tell(batch, [held.infra(batch.seat.lost)] * requests, requests)

    def _tell(self, batch: held.Batch, outcomes: list[records.Outcome], lost: int) -> None:
        """Give the outcomes of a batch, and count those that the sandbox failed."""
        seat = batch.seat
        if work.resolve(batch.future, outcomes) and seat.lost not in (RELEASED, CLOSED):
            self._count(sessions=not seat.told, requests=lost)
            seat.told = True


def untried(homes: list[held.Home], asked: held.Job | held.Seat) -> list[held.Home]:
    """The hosts that have not failed it yet, or all where each has."""
    return [home for home in homes if home.name not in asked.tried] or homes
