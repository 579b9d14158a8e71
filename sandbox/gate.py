"""The gate of a crew: so many things may be under way, and who comes then waits in order.

Waiting callers hold a ticket, a future that is done once they are in. That is the back-pressure: a
caller that asks for more than the crew can hold is slowed down to the crew's pace.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import threading
import time


class Gate:
    """Counts what is under way and lets the next in when something is done."""

    def __init__(self, room: int):
        self._room = room
        self._lock = threading.Lock()
        self._tickets: collections.deque[concurrent.futures.Future] = collections.deque()

    def enter(self, deadline: float) -> bool:
        """Wait for room until `deadline` on the monotonic clock; False if there was none."""
        ticket = self._ticket()
        try:
            ticket.result(timeout=max(0.0, deadline - time.monotonic()))
        except concurrent.futures.TimeoutError:
            return not ticket.cancel()  # let in at the last moment: it cannot be cancelled any more
        return True

    async def enter_async(self, deadline: float) -> bool:
        """As `enter`, without holding a thread. A cancelled caller gives its place back."""
        ticket = self._ticket()
        waiting = asyncio.wrap_future(ticket)
        try:
            await asyncio.wait_for(waiting, max(0.0, deadline - time.monotonic()))
        except asyncio.CancelledError:
            if not ticket.cancel() and not ticket.cancelled():
                self.leave()
            raise
        except TimeoutError:
            return not ticket.cancel() and not ticket.cancelled()
        return True

    def leave(self) -> None:
        """Give a place back, to the caller that has waited longest if there is one."""
        with self._lock:
            while self._tickets:
                ticket = self._tickets.popleft()
                if ticket.set_running_or_notify_cancel():
                    break
            else:
                self._room += 1
                return
        ticket.set_result(None)

    @property
    def waiting(self) -> int:
        """Callers that wait for room."""
        return sum(not ticket.done() for ticket in list(self._tickets))

    def _ticket(self) -> concurrent.futures.Future:
        ticket: concurrent.futures.Future = concurrent.futures.Future()
        with self._lock:
            if self._room > 0:
                self._room -= 1
                ticket.set_running_or_notify_cancel()
                ticket.set_result(None)
            else:
                self._tickets.append(ticket)
        return ticket
