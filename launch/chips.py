"""Published figures of TPU chips, and how the chips of a slice are wired.

Sources, per generation: https://cloud.google.com/tpu/docs/{v4,v5e,v5p,v6e} for operations, memory
and the shape of the network; the one-way rate of a link from the table of
https://jax-ml.github.io/scaling-book/tpus, which lies 10% below the vendor's (v4 and v5e: 50 GB/s,
v5p and v6e: 100 GB/s), as is reached in practice.
"""

from __future__ import annotations

import dataclasses
import math


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chip:
    """One chip, per chip and not per core."""

    name: str
    flops: float  # per second, bfloat16 with float32 sums
    memory_bytes: float  # of main memory
    memory_rate: float  # bytes per second
    link_rate: float  # bytes per second, one direction of one link
    wrap: int  # an axis of the slice that is a multiple of this closes to a ring
    host_chips: int  # chips of one host of a slice over several hosts

    @property
    def source(self) -> str:
        """Give the page that the numbers are from."""
        return f"https://cloud.google.com/tpu/docs/{self.name}"


CHIPS = {
    "v4": Chip(
        name="v4",
        flops=275e12,
        memory_bytes=32e9,
        memory_rate=1200e9,
        link_rate=45e9,
        wrap=4,
        host_chips=4,
    ),
    "v5e": Chip(
        name="v5e",
        flops=197e12,
        memory_bytes=16e9,
        memory_rate=819e9,
        link_rate=45e9,
        wrap=16,
        host_chips=4,
    ),
    "v5p": Chip(
        name="v5p",
        flops=459e12,
        memory_bytes=95e9,
        memory_rate=2765e9,
        link_rate=90e9,
        wrap=4,
        host_chips=4,
    ),
    "v6e": Chip(
        name="v6e",
        flops=918e12,
        memory_bytes=32e9,
        memory_rate=1640e9,
        link_rate=90e9,
        wrap=16,
        host_chips=4,
    ),
}


def parse(topology: str) -> tuple[Chip, tuple[int, ...]]:
    """Read a slice as `v5e:16x16`: the chip, and chips along each axis.

    Raises:
      ValueError: an unknown chip, or no shape.
    """
    name, _, shape = topology.partition(":")
    if name not in CHIPS:
        raise ValueError(f"topology={topology!r}: chip {name!r} is unknown; use {sorted(CHIPS)}.")
    sizes = shape.split("x")
    if not shape or not all(size.isdigit() and int(size) > 0 for size in sizes):
        raise ValueError(
            f"topology={topology!r}: write the chips along each axis, as in v5e:16x16."
        )
    return CHIPS[name], tuple(int(size) for size in sizes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slice:
    """Chips of one kind in a grid; `coordinates[i]` is where the program's device i stands."""

    chip: Chip
    shape: tuple[int, ...]
    coordinates: tuple[tuple[int, ...], ...]

    def ring_rate(self, group: tuple[int, ...]) -> float:
        """Give the bytes per second at which a chip takes in what its group exchanges by rings.

        An axis of the grid on which the members differ carries its share in both directions where
        it closes to a ring, in one where it does not. Members that stand `gap` apart share their
        links with the groups between them.

        Returns:
          the sum over those axes; infinity for a group of one.
        """
        members = [self.coordinates[device] for device in group]
        rate = 0.0
        for axis, length in enumerate(self.shape):
            at = sorted({member[axis] for member in members})
            if len(at) < 2:
                continue
            gap = max(1, min(b - a for a, b in zip(at, at[1:], strict=False)))
            whole = len(at) * gap == length
            closed = whole and length % self.chip.wrap == 0
            rate += (2 if closed else 1) * self.chip.link_rate / gap
        return rate or math.inf

    def hops(self, source: int, target: int) -> int:
        """Count the links between two devices on the shortest way."""
        total = 0
        for axis, length in enumerate(self.shape):
            away = abs(self.coordinates[source][axis] - self.coordinates[target][axis])
            ring = length % self.chip.wrap == 0
            total += min(away, length - away) if ring else away
        return total
