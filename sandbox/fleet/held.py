"""What a desk of the fleet holds: hosts, programs and sessions, and what was lost."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
from typing import Any, Protocol

from sandbox import records
from sandbox.fleet import meter


class HostLost(Exception):
    """A host did not answer: it is gone, or cannot be reached."""


class Host(Protocol):
    """A `host.HostCrew` somewhere."""

    def ask(self, method: str, *arguments: Any) -> concurrent.futures.Future:
        """Call a method; the future raises HostLost where the host is gone."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Losses:
    """What lost and failing hosts have cost this client, counted where it is told."""

    hosts: int = 0
    moved: int = 0  # programs, calls and sessions without an answer yet, started again elsewhere
    programs: int = 0  # and calls, that were answered `infra`
    sessions: int = 0  # of which something was answered `infra`; closing one is no loss
    requests: int = 0  # of those sessions, answered `infra`


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
    tried: set[str] = dataclasses.field(default_factory=set)  # hosts that failed it

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
    tried: set[str] = dataclasses.field(default_factory=set)  # hosts that failed it
    home: Home | None = None
    active: Batch | None = None
    waiting: collections.deque[Batch] = dataclasses.field(default_factory=collections.deque)
    lost: str = ""  # why it answers nothing any more
    told: bool = False  # the caller has read `infra` for a fault of ours


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


def infra(detail: str) -> records.Outcome:
    """Make the outcome of work that the fleet could not have done."""
    return records.Outcome(status=records.INFRA, detail=detail)


def refuse(future: concurrent.futures.Future, error: Exception) -> None:
    """Raise a fault of ours where the answer is awaited."""
    if not future.done() and future.set_running_or_notify_cancel():
        future.set_exception(error)
