"""What a crew has done: throughput, queue, latency, outcomes, memory of its boxes.

`Meter` counts on one host; `Report` is what it tells; `total` sums reports into one of the fleet.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Sequence

RATE_SECONDS = 30.0  # throughput is that of so long a time
KEPT = 2000  # latencies remembered


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """One host, or the sum over hosts. Orders are programs, calls and batches of sessions."""

    host: str
    tier: str
    boxes: int
    window: int  # orders under way in one box
    packages: tuple[str, ...]  # that programs may import
    leaving: bool  # it takes nothing new
    sessions: int  # open
    asked: int  # orders not answered yet, those that wait in the crew included
    answered: int  # orders since the start
    orders_a_second: float  # of the last RATE_SECONDS
    outcomes: dict[str, int]  # status -> outcomes since the start, one per request of a session
    p50_seconds: float  # from order to answer on the host, of the last KEPT orders
    p90_seconds: float
    p99_seconds: float
    memory_bytes: int  # proportional resident memory of the boxes


class Meter:
    """Counts orders of one crew; used from one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._born = clock()
        self._ends: collections.deque[float] = collections.deque()
        self._latencies: collections.deque[float] = collections.deque(maxlen=KEPT)
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.asked = self.answered = 0

    def begin(self) -> float:
        """Note an order; give its start."""
        self.asked += 1
        return self._clock()

    def end(self, started: float, statuses: Iterable[str]) -> None:
        """Note the answer of an order."""
        now = self._clock()
        self.asked -= 1
        self.answered += 1
        self.outcomes.update(statuses)
        self._latencies.append(now - started)
        self._ends.append(now)
        self._forget(now)

    def rate(self) -> float:
        """Orders answered per second, of the last RATE_SECONDS or since the start."""
        now = self._clock()
        self._forget(now)
        return len(self._ends) / max(min(RATE_SECONDS, now - self._born), 1e-3)

    def latency(self, share: float) -> float:
        """The latency that `share` of the remembered orders stay within; 0 without any."""
        return percentile(self._latencies, share)

    def _forget(self, now: float) -> None:
        while self._ends and now - self._ends[0] > RATE_SECONDS:
            self._ends.popleft()


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of the values do not pass; 0 without values."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)] if ranked else 0.0


def total(reports: Sequence[Report]) -> Report:
    """Sum over hosts. Latencies are the worst of any host: percentiles do not add."""
    outcomes: collections.Counter[str] = collections.Counter()
    for report in reports:
        outcomes.update(report.outcomes)
    return Report(
        host=f"{len(reports)} hosts",
        tier=", ".join(sorted({report.tier for report in reports})),
        boxes=sum(report.boxes for report in reports),
        window=max((report.window for report in reports), default=0),
        packages=(),
        leaving=bool(reports) and all(report.leaving for report in reports),
        sessions=sum(report.sessions for report in reports),
        asked=sum(report.asked for report in reports),
        answered=sum(report.answered for report in reports),
        orders_a_second=sum(report.orders_a_second for report in reports),
        outcomes=dict(outcomes),
        p50_seconds=max((report.p50_seconds for report in reports), default=0.0),
        p90_seconds=max((report.p90_seconds for report in reports), default=0.0),
        p99_seconds=max((report.p99_seconds for report in reports), default=0.0),
        memory_bytes=sum(report.memory_bytes for report in reports),
    )
