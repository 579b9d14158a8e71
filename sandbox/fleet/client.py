"""The fleet as one process sees it: the door of a crew, with the work done on many hosts.

`Fleet` has the interface of `crew.Crew`; its queue holds `FleetConfig.waiting` programs. One thread
owns the desk; callers and hosts put actions into its inbox. A second thread looks for hosts, since
that may block.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import queue
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, Protocol

from sandbox import crew, door, records
from sandbox.fleet import desk, held, meter

TICK_SECONDS = 0.5


class Link(Protocol):
    """Finds the hosts of a fleet."""

    def hosts(self) -> dict[str, held.Host]:
        """Give the hosts there are, by name. May take a while.

        Raises:
          held.HostLost: nobody can say.
        """

    def close(self) -> None:
        """Let go of the fleet."""


class Fleet(door.Door):
    """Owns the connection of this process to the fleet, and closes it.

    Raises:
      records.SandboxUnavailable: no host of the asked tier joined in time.
    """

    def __init__(self, link: Link, config: desk.FleetConfig | None = None):
        self.config = config or desk.FleetConfig()
        self._link = link
        self._desk = desk.Desk(self.config, uuid.uuid4().hex[:12], self._do)
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._ended = False
        self._room = threading.BoundedSemaphore(self.config.waiting)
        self._numbers = itertools.count()
        self._joined = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="sandbox-fleet", daemon=True)
        self._scout = threading.Thread(target=self._look, name="sandbox-scout", daemon=True)
        self._thread.start()
        self._scout.start()
        if not self._joined.wait(self.config.join_seconds):
            refused = "; ".join(f"{host}: {why}" for host, why in self._desk.refused.items())
            self.close()
            raise records.SandboxUnavailable(
                f"No host of the fleet with tier {self.config.tier} joined within "
                f"{self.config.join_seconds:.0f} s (not used: {refused or 'none'}). Start one with "
                " `python -m launch.sandbox_fleet --address=HOST:PORT`."
            )

    def _start(
        self, mode: str, limits: records.Limits | None, *asked: Any
    ) -> concurrent.futures.Future[records.Outcome]:
        limits, now = limits or records.Limits(), time.monotonic()
        future: concurrent.futures.Future = concurrent.futures.Future()
        if not self._room.acquire(timeout=limits.patience):
            future.set_result(held.infra(crew.QUEUE_FULL))
            return future
        future.add_done_callback(lambda _: self._room.release())
        job = held.Job(
            method=mode,
            arguments=asked,
            limits=limits,
            future=future,
            since=now,
            deadline=now + limits.patience,
        )
        self._do(lambda: self._desk.add(job))
        return future

    async def _finish(
        self, mode: str, limits: records.Limits | None, *asked: Any
    ) -> records.Outcome:
        """Begin in a thread, since that may wait for room."""
        begun = await asyncio.to_thread(self._start, mode, limits, *asked)
        return await asyncio.wrap_future(begun)

    def open(self, source: str, *, hash_seed: int = 0, **options: Any) -> Session:
        """Start a process that hosts plays; see `crew.Crew.open`. It starts with the first
        batch."""
        crew.template_kind(source, hash_seed)  # refuses a hash seed here and not on the host
        opening = {"source": source, "hash_seed": hash_seed, **options}
        return Session(self, held.Seat(number=next(self._numbers), opening=opening))

    def submit(self, batch: held.Batch) -> None:
        """Send a batch of a session."""
        self._do(lambda: self._desk.submit(batch))

    def release(self, seat: held.Seat) -> None:
        """Close a session."""
        self._do(lambda: self._desk.release(seat))

    @property
    def losses(self) -> held.Losses:
        """What the loss of hosts has cost so far."""
        return self._desk.losses

    def reports(self) -> list[meter.Report]:
        """What the hosts in use told last; `meter.total` sums it."""
        return [home.report for home in list(self._desk.homes.values())]

    @property
    def tier(self) -> str:
        """The tiers of the hosts in use."""
        return meter.total(self.reports()).tier or self.config.tier

    def describe(self) -> str:
        """Say what runs programs now."""
        whole = meter.total(self.reports())
        return f"{whole.boxes} boxes on {whole.host} of the fleet, {self.tier}"

    def close(self) -> None:
        """Leave the fleet; what is still asked answers `infra`."""
        self._closed.set()
        self._do(lambda: None)
        self._thread.join(timeout=20)
        self._scout.join(timeout=20)
        self._link.close()

    def _do(self, action: Callable[[], None]) -> None:
        """Have the thread do something; when it has ended, everything asked is refused at once."""
        with self._lock:
            if not self._ended:
                self._inbox.put(action)
                return
            action()
            self._desk.give_up(float("inf"), desk.CLOSED)

    def _look(self) -> None:
        while not self._closed.is_set():
            try:
                found = self._link.hosts()
            except held.HostLost as error:
                print(f"sandbox: the hosts of the fleet are unknown: {error}", file=sys.stderr)
            else:
                self._do(lambda found=found: self._desk.court(found))
            known = self._joined.is_set()
            self._closed.wait(self.config.renew_seconds if known else TICK_SECONDS)

    def _serve(self) -> None:
        ticked = 0.0
        while not self._closed.is_set():
            try:
                self._inbox.get(timeout=TICK_SECONDS)()
                self._empty_inbox()
            except queue.Empty:
                pass
            if time.monotonic() - ticked > TICK_SECONDS:
                ticked = time.monotonic()
                self._desk.tick(ticked)
            self._desk.dispatch()
            if self._desk.homes:
                self._joined.set()
        with self._lock:
            self._ended = True
            self._empty_inbox()
            self._desk.end()

    def _empty_inbox(self) -> None:
        while not self._inbox.empty():
            self._inbox.get()()


class Session:
    """One process with many plays on one host; see `crew.Session`."""

    def __init__(self, fleet: Fleet, seat: held.Seat):
        self._fleet, self._seat = fleet, seat

    def submit(self, requests: list[dict]) -> concurrent.futures.Future[list[records.Outcome]]:
        """Send a batch; the future gives one outcome per request, in order."""
        future: concurrent.futures.Future = concurrent.futures.Future()
        if not requests:
            future.set_result([])
            return future
        now = time.monotonic()
        self._fleet.submit(
            held.Batch(seat=self._seat, requests=list(requests), future=future, since=now)
        )
        return future

    def step(self, requests: list[dict]) -> list[records.Outcome]:
        """As `submit`, waiting for the outcomes."""
        return self.submit(requests).result()

    async def step_async(self, requests: list[dict]) -> list[records.Outcome]:
        """As `step`, to be awaited."""
        return await asyncio.wrap_future(self.submit(requests))

    @property
    def host(self) -> str:
        """The host it lives on; empty before its first batch is sent."""
        home = self._seat.home
        return home.name if home is not None else ""

    def close(self) -> None:
        """End the process. Closing twice is allowed."""
        self._fleet.release(self._seat)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
