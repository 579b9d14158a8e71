"""Times that a compiled program cannot beat: compute, memory, interconnect.

Comes in: the work of one device (`cost`) and a slice (`chips`). Goes out: seconds by resource, the
bound and the share of the peak that it allows. Each resource is taken at its published rate and as
if the others never waited for it; the bound is the longest of the three. A real run is slower.
"""

from __future__ import annotations

import collections
import dataclasses

from launch import chips, cost


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exchange:
    """What one kind of collective moves."""

    count: int
    payload_bytes: float  # gathered, or not yet scattered, on one device
    wire_bytes: float  # taken in by one device
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Roofline:
    """One program on one slice; counts are of one device."""

    matrix_flops: float
    other_flops: float
    memory_bytes: float
    exchanges: dict[str, Exchange]  # by kind
    compute_seconds: float
    memory_seconds: float
    network_seconds: float
    unknown: dict[str, int]  # what could not be counted, and how often it runs

    @property
    def seconds(self) -> float:
        """Give the time of the resource that takes longest."""
        return max(self.compute_seconds, self.memory_seconds, self.network_seconds)

    @property
    def bound(self) -> str:
        """Name that resource."""
        times = {
            "compute": self.compute_seconds,
            "memory": self.memory_seconds,
            "interconnect": self.network_seconds,
        }
        return max(times, key=times.get)

    def utilisation(self, model_flops: float, chip: chips.Chip) -> float:
        """Give the model's operations per device over what the chip could do in `seconds`."""
        return model_flops / (self.seconds * chip.flops) if self.seconds else 0.0


def measure(works: list[cost.Work], where: chips.Slice) -> Roofline:
    """Turn counts into times.

    Products run at the chip's bfloat16 rate; element-wise operations overlap with them or wait for
    memory, and are counted but not timed.
    """
    matrix_flops = cost.total(works, "matrix_flops")
    memory_bytes = cost.total(works, "memory_bytes")
    unknown = collections.Counter()
    for work in works:
        if work.unknown:
            unknown[work.unknown] += work.times
    exchanges = _exchanges(works, where)
    return Roofline(
        matrix_flops=matrix_flops,
        other_flops=cost.total(works, "other_flops"),
        memory_bytes=memory_bytes,
        exchanges=exchanges,
        compute_seconds=matrix_flops / where.chip.flops,
        memory_seconds=memory_bytes / where.chip.memory_rate,
        network_seconds=sum(exchange.seconds for exchange in exchanges.values()),
        unknown=dict(unknown),
    )


def wire(collective: cost.Collective, where: chips.Slice) -> tuple[float, float]:
    """Give the bytes that one device takes in, and the seconds, of one collective.

    Rings, as in https://jax-ml.github.io/scaling-book/sharding: a gather or a scatter over n
    devices takes in (n - 1) / n of the whole, an all-reduce is a scatter and a gather, an
    all-to-all passes a quarter of a gather's bytes over each link of a ring.
    """
    parts = max(len(collective.group), 1)
    whole = collective.bytes * (parts - 1) / parts
    if collective.kind == "collective-permute":
        far = max((where.hops(a, b) for a, b in collective.hops), default=1)
        return collective.bytes, collective.bytes * max(far, 1) / where.chip.link_rate
    rate = where.ring_rate(collective.group)
    if collective.kind == "all-reduce":
        return 2 * whole, 2 * whole / rate
    if collective.kind == "all-to-all":
        # `bytes` is one device's part, of the size that a gather multiplies by the group.
        return whole, whole * parts / 4 / rate
    return whole, whole / rate


def _exchanges(works: list[cost.Work], where: chips.Slice) -> dict[str, Exchange]:
    sums = collections.defaultdict(lambda: [0, 0.0, 0.0, 0.0])
    for work in works:
        if work.collective is None:
            continue
        wire_bytes, seconds = wire(work.collective, where)
        entry = sums[work.collective.kind]
        for place, value in enumerate((1, work.collective.bytes, wire_bytes, seconds)):
            entry[place] += work.times * value
    return {
        kind: Exchange(count=n, payload_bytes=payload, wire_bytes=on_wire, seconds=seconds)
        for kind, (n, payload, on_wire, seconds) in sorted(sums.items())
    }
