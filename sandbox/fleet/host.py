"""The crew of one host, as the fleet's clients reach it.

Clients are trainer processes. Each renews a lease; when it is silent for longer, or leaves, its
sessions are closed. A program that still runs for a silent client ends by its own limits.
It runs in one asyncio loop and knows nothing of Ray.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Coroutine
from typing import Any

from sandbox import crew, records, usage
from sandbox.fleet import meter

LOOK_SECONDS = 1.0
MEMORY_SECONDS = 10.0  # between looks at the memory of the boxes: each reads /proc of all processes


@dataclasses.dataclass(kw_only=True)
class _Client:
    renewed: float
    sessions: dict[int, crew.Session] = dataclasses.field(default_factory=dict)


class HostCrew:
    """Owns the crew of this host and the sessions of its clients.

    Raises:
      records.SandboxUnavailable: no box of the asked tier can be started here.
    """

    def __init__(self, config: crew.CrewConfig, name: str, lease_seconds: float):
        self._crew = crew.Crew(config)
        self._name, self._lease = name, lease_seconds
        self._clients: dict[str, _Client] = {}
        self._meter = meter.Meter()
        self._leaving = 0.0  # since when
        self._memory = (-MEMORY_SECONDS, 0)  # when it was read, bytes
        self._look: asyncio.Task | None = None

    async def run(self, source: str, stdin: str, limits: records.Limits | None) -> records.Outcome:
        """See `crew.Crew.run`."""
        return (await self._measured(self._crew.run_async(source, stdin, limits)))[0]

    async def call(
        self, source: str, function: str, inputs: list[Any], limits: records.Limits | None
    ) -> records.Outcome:
        """See `crew.Crew.call`."""
        asked = self._crew.call_async(source, function, inputs, limits)
        return (await self._measured(asked))[0]

    async def batch(
        self, client: str, number: int, opening: dict | None, requests: list[dict]
    ) -> list[records.Outcome]:
        """Answer a batch of a session.

        Args:
          client: who asks; it holds a lease.
          number: of the session, among those of the client.
          opening: with the first batch, the arguments of `crew.Crew.open`.
        """
        known = self._clients.get(client)
        if known is not None and opening is not None:
            known.sessions[number] = self._crew.open(**opening)
        session = known.sessions.get(number) if known is not None else None
        if session is None:
            detail = f"host {self._name} does not hold this session: its lease ran out"
            return [records.Outcome(status=records.INFRA, detail=detail)] * len(requests)
        return await self._measured(session.step_async(requests))

    async def _measured(self, asked: Coroutine) -> list[records.Outcome]:
        """Await outcomes and count them."""
        started = self._meter.begin()
        outcomes: list[records.Outcome] = []
        try:
            got = await asked
            outcomes = got if isinstance(got, list) else [got]
        finally:
            self._meter.end(started, [outcome.status for outcome in outcomes])
        return outcomes

    async def release(self, client: str, number: int) -> None:
        """Close a session; one that is not here is closed already."""
        known = self._clients.get(client)
        session = known.sessions.pop(number, None) if known is not None else None
        if session is not None:
            session.close()

    async def renew(self, client: str, fresh: bool) -> meter.Report:
        """Begin or renew a client's lease; tell how the host is doing.

        Args:
          fresh: the client believes that it has no session here. One that lost sight of this host
            has given its sessions up.
        """
        if fresh:
            self._forget(client)
        if self._look is None:
            self._look = asyncio.get_running_loop().create_task(self._watch_leases())
        self._clients.setdefault(client, _Client(renewed=0.0)).renewed = time.monotonic()
        return await self.report()

    async def farewell(self, client: str) -> None:
        """End a client's lease and its sessions."""
        self._forget(client)

    async def leave(self) -> None:
        """Ask clients, through the report, to go elsewhere; what they send is still done."""
        self._leaving = self._leaving or time.monotonic()

    async def vacant(self) -> bool:
        """Tell whether nothing is left to do: every client has read that this host leaves."""
        told = all(client.renewed > self._leaving for client in self._clients.values())
        sessions = any(client.sessions for client in self._clients.values())
        return bool(self._leaving) and told and not sessions and not self._meter.asked

    async def close(self) -> None:
        """End every box."""
        await asyncio.get_running_loop().run_in_executor(None, self._crew.close)

    async def report(self) -> meter.Report:
        """Tell how the host is doing."""
        now = time.monotonic()
        if now - self._memory[0] > MEMORY_SECONDS:
            boxes = [box.process.pid for box in self._crew.boxes if box.process is not None]
            self._memory = (now, sum(map(usage.tree_bytes, boxes)))
        measured = self._meter
        return meter.Report(
            host=self._name,
            tier=self._crew.tier,
            boxes=len(self._crew.boxes),
            window=self._crew.config.window,
            packages=self._crew.config.packages,
            leaving=bool(self._leaving),
            sessions=sum(len(client.sessions) for client in self._clients.values()),
            asked=measured.asked,
            answered=measured.answered,
            orders_a_second=measured.rate(),
            outcomes=dict(measured.outcomes),
            p50_seconds=measured.latency(0.5),
            p90_seconds=measured.latency(0.9),
            p99_seconds=measured.latency(0.99),
            memory_bytes=self._memory[1],
        )

    async def _watch_leases(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = time.monotonic()
            late = [k for k, c in self._clients.items() if now - c.renewed > self._lease]
            for client in late:
                self._forget(client)

    def _forget(self, client: str) -> None:
        known = self._clients.pop(client, None)
        for session in known.sessions.values() if known is not None else ():
            session.close()
