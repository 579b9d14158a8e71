"""Which row of a cache holds which tokens: what of a prompt is there, which row to give away."""

from __future__ import annotations

from collections.abc import Container

import numpy as np


class Table:
    """The tokens of N rows of W places, on the host."""

    def __init__(self):
        self._tokens_NW = np.zeros((0, 0), np.int32)
        self.lengths_N = np.zeros(0, np.int32)  # tokens of each row that are in the cache
        self._used_N = np.zeros(0, np.int64)  # when a row was last given away
        self._clock = 0

    @property
    def rows(self) -> int:
        """Count the rows, N."""
        return self._tokens_NW.shape[0]

    @property
    def places(self) -> int:
        """Count the places of a row, W."""
        return self._tokens_NW.shape[1]

    def grow(self, rows: int, places: int) -> None:
        """Make room for at least as many rows and places as there are."""
        spare = rows - self.rows
        self._tokens_NW = np.pad(self._tokens_NW, ((0, spare), (0, places - self.places)))
        self.lengths_N = np.pad(self.lengths_N, (0, spare))
        self._used_N = np.pad(self._used_N, (0, spare))

    def forget(self) -> None:
        """Empty all rows."""
        self.lengths_N[:] = 0

    def remember(self, row: int, tokens: tuple[int, ...]) -> None:
        """Note what a row holds: all tokens of a sequence but the last."""
        self._tokens_NW[row, : len(tokens) - 1] = tokens[:-1]
        self.lengths_N[row] = len(tokens) - 1

    def match(self, tokens: tuple[int, ...]) -> tuple[int, int]:
        """Find the row that begins most like the tokens, and how many they share."""
        if not tokens or not self.lengths_N.any():
            return 0, 0
        width = min(len(tokens), self.places)
        differs_NW = self._tokens_NW[:, :width] != np.asarray(tokens[:width], np.int32)
        first_N = np.where(differs_NW.any(axis=1), differs_NW.argmax(axis=1), width)
        shared_N = np.minimum(first_N, self.lengths_N)
        # Of equals take one that holds nothing else: it can be taken over.
        row = int(np.lexsort((shared_N == self.lengths_N, shared_N))[-1])
        return row, int(shared_N[row])

    def take(
        self, source: int, shared: int, busy: Container[int], reserved: Container[int]
    ) -> int | None:
        """Give away a row, which then counts as empty until it is remembered.

        Args:
            source: the row that begins like the new sequence.
            shared: how many tokens it has of it.
            busy: rows that may not be given away.
            reserved: rows that others will go on with, given away last.
        Returns:
            the source where it holds nothing else, else an empty row, else the longest unused;
            None where all are busy.
        """
        row = self._choose(source, shared, busy, reserved)
        if row is not None:
            self._clock += 1
            self._used_N[row] = self._clock
            self.lengths_N[row] = 0
        return row

    def _choose(self, source, shared, busy, reserved):
        if shared and shared == self.lengths_N[source] and source not in busy:
            return source
        idle = [
            (row in reserved, self.lengths_N[row] > 0, self._used_N[row], row)
            for row in range(self.rows)
            if row not in busy and (row != source or not shared)
        ]
        if idle:
            return min(idle)[-1]
        return None if source in busy else source
