"""Count what a compiled program executes: operations, memory traffic and collectives of one device.

Comes in: a `hlo.Module`. Goes out: one `Work` per instruction, with how often it runs. XLA's own
`cost_analysis` counts the body of a loop once; here it is multiplied by the loop's trip count,
nested loops by both. Rules of counting follow `xla/service/hlo_cost_analysis.cc` and differ in:

* traffic is counted at the edge of a fusion, and of main memory only: arrays that the compiler
  keeps in on-chip memory (`S(1)` in a TPU layout) cost nothing;
* a slice read or written inside a fusion counts as the slice and not as the array it is cut from;
* an asynchronous collective, whose steps the TPU compiler spreads over fusions, counts once,
  where it starts;
* a Pallas kernel counts what its `cost_estimate` says, see `kernels`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from launch import hlo, kernels, products

FREE = frozenset(
    "parameter constant tuple get-tuple-element bitcast after-all partition-id replica-id domain "
    "opt-barrier add-dependency get-dimension-size copy-done all-gather-done all-reduce-done "
    "collective-permute-done async-done async-update send send-done recv recv-done slice-done "
    "dynamic-slice-done dynamic-update-slice-done infeed outfeed rng-get-and-update-state".split()
)
TRANSCENDENTAL = frozenset(
    "exponential exponential-minus-one log log-plus-one logistic power sqrt rsqrt cbrt tanh sine "
    "cosine tan erf atan2".split()
)
ELEMENTWISE = frozenset(
    "abs add and ceil clamp compare convert count-leading-zeros divide floor is-finite maximum "
    "minimum multiply negate not or popcnt remainder round-nearest-afz round-nearest-even select "
    "shift-left shift-right-arithmetic shift-right-logical sign subtract xor stochastic-convert "
    "complex real imag".split()
)
COLLECTIVES = {
    "all-gather": "all-gather",
    "all-gather-start": "all-gather",
    "all-reduce": "all-reduce",
    "all-reduce-start": "all-reduce",
    "reduce-scatter": "reduce-scatter",
    "all-to-all": "all-to-all",
    "ragged-all-to-all": "all-to-all",
    "collective-permute": "collective-permute",
    "collective-permute-start": "collective-permute",
    "collective-broadcast": "collective-permute",
}
_SLICES = ("dynamic-slice", "gather", "slice")
_HANDED_ON = ("tuple", "custom-call")  # inside a fusion: steps of an asynchronous collective
_PASS = ("bitcast", "copy", "convert", "reshape", "transpose", "get-tuple-element")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collective:
    """One exchange between devices."""

    kind: str  # a value of COLLECTIVES
    bytes: float  # of the larger side on one device: gathered, or not yet scattered
    group: tuple[int, ...]  # devices of the first group; () where all take part
    hops: tuple[tuple[int, int], ...] = ()  # (source, target) of a permute


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """One instruction of the program and how often it runs."""

    name: str
    opcode: str
    source: str  # of the model's code, as JAX names it
    times: int
    matrix_flops: float = 0.0  # of one run: products, convolutions and kernels; 2 a multiply-add
    other_flops: float = 0.0
    transcendentals: float = 0.0
    memory_bytes: float = 0.0  # read from and written to main memory
    collective: Collective | None = None
    unknown: str = ""  # what could not be counted


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Place:
    """Where the walk stands."""

    times: int
    inside: bool  # of a fusion: traffic is counted at its edge
    scale: float = 1.0  # runs of a reduction's operation


def works(module: hlo.Module, unknown_trips: int = 1) -> list[Work]:
    """List everything that one device executes.

    Args:
      module: a compiled program.
      unknown_trips: runs of a loop whose count the compiled program does not hold, because it stops
        on a condition; such a loop is told in `Work.unknown`.
    """
    walker = _Walker(module, unknown_trips)
    return list(walker.walk(module.computations[module.entry], _Place(times=1, inside=False)))


def total(works: list[Work], field: str) -> float:
    """Add up a field over all runs."""
    return sum(work.times * getattr(work, field) for work in works)


class _Walker:
    """The module and what the walk was told."""

    def __init__(self, module: hlo.Module, unknown_trips: int):
        self._module = module
        self._unknown_trips = unknown_trips

    def walk(self, computation: hlo.Computation, place: _Place) -> Iterator[Work]:
        for instruction in computation.instructions:
            if instruction.opcode == "while":
                yield from self._loop(computation, instruction, place)
            elif instruction.opcode == "conditional":
                yield from self._branches(instruction, place)
            elif instruction.opcode in ("call", "async-start", "fusion"):
                yield from self._inner(computation, instruction, place)
            elif instruction.opcode not in FREE:
                yield self._one(computation, instruction, place)

    def _loop(self, computation, instruction, place: _Place) -> Iterator[Work]:
        trips = hlo_trips(self._module, computation, instruction)
        if trips is None:
            trips = self._unknown_trips
            yield _work(instruction, place, unknown=f"trip count, taken as {trips}")
        inner = dataclasses.replace(place, times=place.times * trips)
        called = instruction.called()
        for part in ("body", "condition"):
            yield from self.walk(self._module.computations[called[part]], inner)

    def _branches(self, instruction, place: _Place) -> Iterator[Work]:
        """Take the branch with the most traffic and operations."""
        branches = [
            list(self.walk(self._module.computations[name], place))
            for name in instruction.called().values()
        ]
        yield from max(branches, key=lambda w: total(w, "matrix_flops") + total(w, "memory_bytes"))

    def _inner(self, computation, instruction, place: _Place) -> Iterator[Work]:
        called = instruction.called()
        inner = self._module.computations[called.get("calls", called.get("to_apply"))]
        if instruction.opcode == "fusion":
            if not place.inside:
                traffic = fusion_bytes(self._module, computation, instruction)
                yield _work(instruction, place, memory_bytes=traffic)
            place = dataclasses.replace(place, inside=True)
            for work in self.walk(inner, place):
                yield _scattered(work, inner)
        else:
            yield from self.walk(inner, place)

    def _one(self, computation, instruction, place: _Place) -> Work:
        counts = self._operations(computation, instruction)
        streamed = counts.pop("streamed_bytes", 0.0)  # beside operands and results
        if not place.inside:
            once = counts.get("memory_bytes", _bytes(computation, instruction))
            counts["memory_bytes"] = once + streamed
        else:
            counts.pop("memory_bytes", None)
        if instruction.opcode in COLLECTIVES and not _continued(computation, instruction):
            counts["collective"] = collective(computation, instruction, self._module.devices)
        return _work(instruction, place, **counts)

    def _operations(self, computation, instruction) -> dict:
        opcode = instruction.opcode
        if opcode == "dot":
            return {"matrix_flops": products.dot(computation, instruction)}
        if opcode == "convolution":
            return {"matrix_flops": products.convolution(computation, instruction)}
        if opcode == "custom-call":
            return kernels.count(computation, instruction)
        if opcode in TRANSCENDENTAL:
            return {"transcendentals": instruction.array.elements}
        if opcode in ELEMENTWISE:
            return {"other_flops": instruction.array.elements}
        if opcode in ("reduce", "reduce-window", "map", "scatter", "select-and-scatter"):
            return self._reduction(computation, instruction)
        return {}

    def _reduction(self, computation, instruction) -> dict:
        """Count the operation that joins two elements, once for every element that is joined."""
        inner = self._module.computations[instruction.called()["to_apply"]]
        joined = self.walk(inner, _Place(times=1, inside=True))
        per_element = sum(work.other_flops for work in joined)
        inputs = [computation[name].array for name in instruction.operands]
        if instruction.opcode == "reduce":
            runs = inputs[0].elements - instruction.array.elements
        elif instruction.opcode == "scatter":
            runs = inputs[-1].elements
        else:
            runs = instruction.array.elements
        return {"other_flops": per_element * max(runs, 0)}


def hlo_trips(module: hlo.Module, computation: hlo.Computation, loop: hlo.Instruction):
    """Find how often a loop's body runs: from the compiler's note, else from counter and bound.

    Returns:
      the count, or None where the loop stops on anything but a counter that reaches a constant.
    """
    if loop.trips() is not None:
        return loop.trips()
    called = loop.called()
    condition = module.computations[called["condition"]]
    body = module.computations[called["body"]]
    test = condition.root
    if test.opcode != "compare" or test.word("direction") != "LT":
        return None
    counter, bound = (condition[name] for name in test.operands)
    stop = _constant(condition, bound.name)
    if counter.opcode != "get-tuple-element" or stop is None:
        return None
    index = counter.number("index", 0)
    start_of, step_of = computation[loop.operands[0]], body.root
    if start_of.opcode != "tuple" or step_of.opcode != "tuple":
        return None
    start = _constant(computation, start_of.operands[index])
    step = _step(module, body, step_of.operands[index], index)
    if start is None or not step:
        return None
    return max(0, -(-(stop - start) // step))


def fusion_bytes(
    module: hlo.Module, computation: hlo.Computation, fusion: hlo.Instruction
) -> float:
    """Count the traffic of a fusion: what it reads of each operand, and what it writes."""
    inner, read = _fused(module, fusion), 0.0
    for number, parameter in inner.parameters().items():
        array = computation[fusion.operands[number]].arrays
        if not array or array[0].space:
            continue
        read += sum(_read(module, inner, parameter.name, each) for each in array)
    roots = [inner.root]
    if inner.root.opcode == "tuple":
        roots = [inner[name] for name in inner.root.operands]
    written = 0.0
    for root, array in zip(roots, fusion.arrays, strict=False):
        written += 0.0 if array.space else _written(module, inner, root, array)
    return read + written


def collective(
    computation: hlo.Computation, instruction: hlo.Instruction, devices: int
) -> Collective:
    """Read what a collective exchanges, and among whom."""
    kind = COLLECTIVES[instruction.opcode]
    inputs = [array for name in instruction.operands for array in computation[name].arrays]
    results = instruction.arrays
    if instruction.opcode == "all-gather-start":
        results = results[len(inputs) :]
    larger = results if kind == "all-gather" else inputs
    return Collective(
        kind=kind,
        bytes=sum(array.bytes for array in larger),
        group=instruction.group(devices),
        hops=instruction.pairs(),
    )


def _work(instruction: hlo.Instruction, place: _Place, **counts) -> Work:
    return Work(
        name=instruction.name,
        opcode=instruction.opcode,
        source=instruction.word("op_name"),
        times=place.times,
        **counts,
    )


def _scattered(work: Work, inner: hlo.Computation) -> Work:
    """Tell an all-reduce that a fusion cuts to its own part at once: it is a reduce-scatter."""
    exchange = work.collective
    if exchange is None or exchange.kind != "all-reduce" or work.name not in inner:
        return work
    users = inner.users(work.name)
    while users and all(user.opcode in _PASS for user in users):
        users = [after for user in users for after in inner.users(user.name)]
    if users and all(user.opcode == "dynamic-slice" for user in users):
        exchange = dataclasses.replace(exchange, kind="reduce-scatter")
    return dataclasses.replace(work, collective=exchange)


def _continued(computation: hlo.Computation, instruction: hlo.Instruction) -> bool:
    """Tell a later step of an asynchronous collective from its start."""
    if not instruction.word("chain_id"):
        return False
    targets = [u.word("custom_call_target") for u in computation.users(instruction.name)]
    return "AsyncCollectiveStart" not in targets


def _bytes(computation: hlo.Computation, instruction: hlo.Instruction) -> float:
    """Count the traffic of an instruction that stands alone."""
    results = instruction.arrays
    if instruction.opcode == "copy-start":
        return sum(array.bytes for array in results[:2] if not array.space)  # target, source
    if instruction.opcode in ("slice-start", "dynamic-slice-start"):
        source = computation[instruction.operands[0]].array
        target = results[len(instruction.operands)]  # behind the operands
        return target.bytes * (bool(not source.space) + bool(not target.space))
    if instruction.opcode in _SLICES:
        return 2 * sum(array.bytes for array in results if not array.space)
    if instruction.opcode == "dynamic-update-slice":
        update = computation[instruction.operands[1]].array
        return 0.0 if instruction.array.space else 2 * update.bytes
    inputs = [array for name in instruction.operands for array in computation[name].arrays]
    if instruction.opcode.endswith("-start"):
        results = results[len(inputs) :] or results
    return sum(array.bytes for array in (*inputs, *results) if not array.space)


def _fused(module: hlo.Module, fusion: hlo.Instruction) -> hlo.Computation:
    called = fusion.called()
    return module.computations[called.get("calls", called.get("to_apply"))]


def _read(module: hlo.Module, inner: hlo.Computation, name: str, array: hlo.Array) -> float:
    """Count what a fusion, and those within it, read of one operand."""
    users = inner.users(name)
    if not users:
        return 0.0
    read = 0.0
    for user in users:
        if user.opcode in _SLICES and user.operands[0] == name:
            read += user.array.bytes
        elif user.opcode == "dynamic-update-slice" and user.operands[0] == name:
            read += 0.0  # written in place
        elif user.opcode in _HANDED_ON or _continued(inner, user):
            read += 0.0
        elif user.opcode == "bitcast":
            read += _read(module, inner, user.name, array)
        elif user.opcode == "fusion":
            nested = _fused(module, user)
            for number, parameter in nested.parameters().items():
                if user.operands[number] == name:
                    read += _read(module, nested, parameter.name, array)
        else:
            return array.bytes
    return min(read, array.bytes)


def _written(module, inner: hlo.Computation, root: hlo.Instruction, array: hlo.Array) -> float:
    """Count what a fusion, or the one within it that makes a result, writes of it."""
    while root.opcode == "bitcast" and root.operands:
        root = inner[root.operands[0]]
    if root.opcode == "fusion" and len(root.arrays) == 1:
        nested = _fused(module, root)
        return _written(module, nested, nested.root, array)
    if root.opcode in ("parameter", *_HANDED_ON) or _continued(inner, root):
        return 0.0
    if root.opcode == "dynamic-update-slice":
        return inner[root.operands[1]].array.bytes
    return array.bytes


def _constant(computation: hlo.Computation, name: str) -> int | None:
    """Read an integer constant through copies."""
    instruction = computation[name]
    while instruction.opcode in ("copy", "bitcast") and instruction.operands:
        instruction = computation[instruction.operands[0]]
    if instruction.opcode != "constant" or not instruction.literal.lstrip("-").isdigit():
        return None
    return int(instruction.literal)


def _step(module: hlo.Module, body: hlo.Computation, name: str, index: int) -> int | None:
    """Read by how much a loop counter rises."""
    added = body[name]
    while added.opcode in ("copy", "bitcast"):
        added = body[added.operands[0]]
    if added.opcode == "fusion":
        body = module.computations[added.called()["calls"]]
        added = body.root
    if added.opcode != "add":
        return None
    steps = [_constant(body, operand) for operand in added.operands]
    known = [step for step in steps if step is not None]
    return known[0] if len(known) == 1 and math.prod(added.array.sizes) == 1 else None
