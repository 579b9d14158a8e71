"""The forms in which programs are run and functions called, the same for a crew and for a fleet.

Each comes as a call that waits (`run`, `call`), one that gives a future (`start_run`, `start_call`)
and one to be awaited (`run_async`, `call_async`).
"""

from __future__ import annotations

import abc
import concurrent.futures
from typing import Any

from sandbox import records


class Door(abc.ABC):
    """Who inherits says how one job is started, and closes what it owns."""

    @abc.abstractmethod
    def _start(
        self, mode: str, limits: records.Limits | None, *asked: Any
    ) -> concurrent.futures.Future[records.Outcome]:
        """Begin a job of mode `run` (source, stdin) or `call` (source, function, inputs)."""

    @abc.abstractmethod
    async def _finish(
        self, mode: str, limits: records.Limits | None, *asked: Any
    ) -> records.Outcome:
        """As `_start`, to be awaited."""

    @abc.abstractmethod
    def close(self) -> None:
        """End what runs; what is still asked answers `infra`."""

    def run(
        self, source: str, stdin: str = "", limits: records.Limits | None = None
    ) -> records.Outcome:
        """Execute a program in a fresh process with nothing but its stdio."""
        return self.start_run(source, stdin, limits).result()

    def call(
        self,
        source: str,
        function: str,
        inputs: list[Any],
        limits: records.Limits | None = None,
    ) -> records.Outcome:
        """Call `function(input)` for each input, all in one fresh process.

        Returns:
          an outcome whose value is the list of answers so far, as strict JSON. An input that raised
          has the answer None and makes the status `error`; an answer that is not readable JSON is
          {"unreadable": reason}, which equals nothing. Answers are compared by the caller
          (`equality.same`): what is expected never enters a box.
        """
        return self.start_call(source, function, inputs, limits).result()

    def start_run(
        self, source: str, stdin: str = "", limits: records.Limits | None = None
    ) -> concurrent.futures.Future[records.Outcome]:
        """As `run`, without waiting for the outcome; waits while the queue is full."""
        return self._start("run", limits, source, stdin)

    def start_call(
        self,
        source: str,
        function: str,
        inputs: list[Any],
        limits: records.Limits | None = None,
    ) -> concurrent.futures.Future[records.Outcome]:
        """As `call`, without waiting for the outcome; waits while the queue is full."""
        return self._start("call", limits, source, function, inputs)

    async def run_async(
        self, source: str, stdin: str = "", limits: records.Limits | None = None
    ) -> records.Outcome:
        """As `run`, to be awaited."""
        return await self._finish("run", limits, source, stdin)

    async def call_async(
        self,
        source: str,
        function: str,
        inputs: list[Any],
        limits: records.Limits | None = None,
    ) -> records.Outcome:
        """As `call`, to be awaited."""
        return await self._finish("call", limits, source, function, inputs)

    def __enter__(self):
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
