"""Hosts of a fleet whose answers the test gives, and a desk whose thread is the test."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses

from sandbox import records
from sandbox.fleet import desk, held, meter

OK = records.Outcome(status="ok", stdout="done")
INFRA = records.Outcome(status="infra", detail="the box died")
LIMITS = records.Limits(wall_seconds=5.0)
REPORT = meter.total([])


class Host:
    """Remembers what it was asked; the test answers."""

    def __init__(self, name: str = "a", **report):
        self.report = dataclasses.replace(
            REPORT, **{"host": name, "tier": "gvisor-ptrace", "boxes": 1, "window": 1} | report
        )
        self.asked: list[tuple[str, tuple, concurrent.futures.Future]] = []
        self.dead = False

    def ask(self, method, *arguments):
        future = concurrent.futures.Future()
        if self.dead:
            future.set_exception(held.HostLost("gone"))
        elif method in ("renew", "release", "farewell"):
            self.asked.append((method, arguments, future))
            future.set_result(self.report)
        else:
            self.asked.append((method, arguments, future))
        return future

    def open(self, method: str) -> list[tuple[tuple, concurrent.futures.Future]]:
        """What waits for an answer."""
        return [(a, f) for m, a, f in self.asked if m == method and not f.done()]

    def die(self) -> None:
        """Fail what is under way, and everything later."""
        self.dead = True
        for _, _, future in self.asked:
            if not future.done():
                future.set_exception(held.HostLost("gone"))


class Office:
    """A desk whose thread is the test."""

    def __init__(self, **hosts: Host):
        self.actions = collections.deque()
        config = desk.FleetConfig(moves=2)
        self.desk = desk.Desk(config, "me", self.actions.append)
        self.join(**hosts)

    def join(self, **hosts: Host) -> None:
        self.desk.court(hosts)
        self.work()

    def work(self) -> None:
        while self.actions:
            self.actions.popleft()()
        self.desk.dispatch()
        if self.actions:
            self.work()

    def run(self, name: str = "program", since: float = 0.0) -> concurrent.futures.Future:
        future = concurrent.futures.Future()
        self.desk.add(
            held.Job(
                method="run",
                arguments=(name,),
                limits=LIMITS,
                future=future,
                since=since,
                deadline=since + 1e9,
            )
        )
        self.work()
        return future

    def open(self) -> held.Seat:
        return held.Seat(number=7, opening={"source": "x"})

    def submit(self, seat: held.Seat, count: int = 1) -> concurrent.futures.Future:
        future = concurrent.futures.Future()
        requests = [{"n": i} for i in range(count)]
        self.desk.submit(held.Batch(seat=seat, requests=requests, future=future, since=0.0))
        self.work()
        return future

    def begin(self, seat: held.Seat) -> None:
        """Have a session answer its first batch."""
        self.submit(seat)
        [(_, answer)] = seat.home.host.open("batch")
        answer.set_result([OK])
        self.work()


def statuses(future) -> list[str]:
    return [outcome.status for outcome in future.result(timeout=0)]
