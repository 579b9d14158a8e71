"""Sandbox processes that host plays: ask many at once, and replay what the sandbox itself lost.

In: a way to open a session, and messages for the processes. Out: the outcomes of each message. The
fields of an outcome come from a program: `text` and `number` take them or say that they are none.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

# Requests sent at once: the wall limit of the sandbox holds for so many, not for a whole group.
PART = 32
STARVED_SHARE = 0.5  # of the wall clock: a program that ran had the processor for more of it


@dataclasses.dataclass(frozen=True, kw_only=True)
class Message:
    """Requests of one play; see `sandbox.crew.Session` for what a request is."""

    key: Hashable  # of the process that hosts the play
    requests: Sequence[dict]
    history: Sequence[dict] = ()  # what the play sent before, in order


class Hosts:
    """Owns processes by key.

    Args:
      open_session: (key) -> a sandbox session in a fresh process.
    """

    def __init__(self, open_session: Callable[[Any], Any]):
        self._open = open_session
        self._sessions: dict[Hashable, Any] = {}

    def start(self, key: Hashable) -> None:
        """Open a process where the key has none."""
        if key not in self._sessions:
            self._sessions[key] = self._open(key)

    def ask(self, messages: Sequence[Message]) -> list[list[Any]]:
        """Send a batch to each process, to all at once.

        A process that the sandbox lost is not the program's doing: another is started, every play
        in it repeats its history (programs are deterministic), and the messages are sent again,
        once. What is lost a second time stays `infra`. So is one asked again, once, whose wall
        clock ran out though it hardly used the processor, as on a busy host; what runs out a second
        time stays `timeout`.

        Args:
          messages: in every process, one of each play that lives in it.
        Returns:
          one outcome per request, for each message.
        """
        answers = self._send([(m.key, m.requests) for m in messages])
        lost = {
            m.key: None  # a dict keeps the order
            for m, got in zip(messages, answers, strict=True)
            if any(outcome.status == "infra" or starved(outcome) for outcome in got)
        }
        for key in lost:
            self._sessions.pop(key).close()
            self.start(key)
        again = [i for i, m in enumerate(messages) if m.key in lost]
        whole = [(messages[i].key, [*messages[i].history, *messages[i].requests]) for i in again]
        for i, got in zip(again, self._send(whole), strict=True):
            answers[i] = got[len(messages[i].history) :]
        return answers

    def close(self) -> None:
        """End every process."""
        while self._sessions:
            self._sessions.popitem()[1].close()

    def _send(self, parts: Sequence[tuple[Hashable, Sequence[dict]]]) -> list[list[Any]]:
        batches: dict[Hashable, list[dict]] = {}
        starts = []
        for key, requests in parts:
            batch = batches.setdefault(key, [])
            starts.append(len(batch))
            batch.extend(requests)
        sent = {
            key: [self._sessions[key].submit(part) for part in cut(batch)]
            for key, batch in batches.items()
        }
        outcomes = {
            key: [outcome for future in futures for outcome in future.result()]
            for key, futures in sent.items()
        }
        return [
            outcomes[key][start : start + len(requests)]
            for start, (key, requests) in zip(starts, parts, strict=True)
        ]


def cut(requests: Sequence[dict]) -> list[list[dict]]:
    """Cut requests into what is sent at once; parts queue behind each other in their process."""
    return [list(requests[i : i + PART]) for i in range(0, len(requests), PART)]


def starved(outcome: Any) -> bool:
    """Tell whether the clock ran out on a program that hardly ran: on a busy host, or asleep."""
    return (
        outcome.status == "timeout" and outcome.cpu_seconds < STARVED_SHARE * outcome.wall_seconds
    )


def text(value: Any) -> str | None:
    """Take a text; None where the field is none."""
    return value if isinstance(value, str) else None


def number(value: Any) -> float | None:
    """Take a finite number that a float can hold; None where the field is none."""
    if type(value) not in (int, float):
        return None
    try:
        held = float(value)
    except OverflowError:
        return None
    return held if math.isfinite(held) else None
