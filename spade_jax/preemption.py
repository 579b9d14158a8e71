"""SIGTERM: the machine is taken away. A run saves what it has and ends with a code of its own.

In: the signal. Out: `Preempted`, raised at once where the state is whole, and otherwise left for
the run to raise when it is. A second SIGTERM ends the process as if nobody had listened.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import jax

EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: the same command again goes on


class Preempted(BaseException):
    """The process was asked to end; its state is saved when this leaves the run.

    No Exception, as KeyboardInterrupt is none: it may be raised inside any library call.
    """


class Notice:
    """Owns the handler of SIGTERM while it is entered; only the main thread can."""

    def __init__(self):
        self.received = False
        self._whole: Callable[[], bool] | None = None
        self._before: Any = None

    def __enter__(self) -> Notice:
        self._before = signal.signal(signal.SIGTERM, self._handle)
        return self

    def __exit__(self, *_: Any) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def hold(self, whole: Callable[[], bool]) -> None:
        """Let a signal break in from now on, wherever `whole` says that the state can be saved."""
        self._whole = whole
        self.check()

    def release(self) -> None:
        """Let a signal wait until the next `check` or `hold`."""
        self._whole = None

    def check(self) -> None:
        """Raise `Preempted` if the signal has come."""
        if self.received:
            self._whole = None
            raise Preempted("SIGTERM: the state is saved; the same command goes on from it.")

    def _handle(self, number: int, frame: Any) -> None:
        if self.received:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
        self.received = True
        if self._whole is not None and self._whole():
            self.check()


def intact(tree: Any) -> bool:
    """Tell whether no array of a pytree was donated to an update."""
    return not any(x.is_deleted() for x in jax.tree.leaves(tree) if isinstance(x, jax.Array))
