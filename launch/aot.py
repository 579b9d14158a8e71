"""Ahead of time: the update compiled for a described slice, and what that tells.

Comes in: a configuration and a topology. Goes out: a `Report`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import jax
from jax.experimental import topologies

from launch import abstract, chips, cost, hlo, roofline
from spade_jax import settings
from spade_jax.policy import sharding


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What one chip holds, executes and exchanges in one run of a program."""

    program: str
    topology: str
    devices: int
    mesh: dict[str, int]
    rows: int
    row_tokens: int
    parameters: int
    memory: dict[str, int]  # bytes by kind; their sum is what has to fit
    host_bytes: int  # in the memory of the chip's host, as the compiler counts them
    capacity: float  # bytes
    largest_rows: int  # of one microbatch that fit, by the memory of this one
    model_flops: float  # what the mathematics needs, on this chip
    roofline: roofline.Roofline
    seconds: dict[str, float]
    bound: str
    utilisation: float  # model_flops over what the chip could do in the bound's time
    compiler_flops: float  # what XLA's cost analysis says, loop bodies once

    @property
    def fits(self) -> bool:
        """Say whether all of it fits the chip's memory."""
        return sum(self.memory.values()) <= self.capacity


def describe(
    topology: str, config: settings.RunConfig
) -> tuple[chips.Slice, jax.sharding.Mesh, settings.RunConfig]:
    """Describe a slice to the compiler and lay the mesh of a configuration over it.

    Returns:
      the slice, the mesh of its devices, and the configuration with the mesh axis `fsdp` stretched
      to what the other axes leave.
    Raises:
      ValueError: the topology is malformed, libtpu knows no such slice, or the axes do not divide
        its devices.
    """
    chip, shape = chips.parse(topology)
    try:
        found = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    except Exception as error:  # the plugin raises its own kinds
        raise ValueError(f"topology={topology!r}: the TPU compiler refuses it: {error}") from error
    config = _stretch(config, len(found.devices))
    mesh = sharding.make_mesh(**dataclasses.asdict(config.mesh), devices=list(found.devices))
    axes = len(shape)
    coordinates = tuple(tuple(device.coords[:axes]) for device in mesh.devices.flat)
    return chips.Slice(chip=chip, shape=shape, coordinates=coordinates), mesh, config


def update(
    config: settings.RunConfig, where: chips.Slice, mesh: jax.sharding.Mesh, rows: int = 0
) -> tuple[Report, str, list[cost.Work]]:
    """Compile the update.

    Returns:
      the report, the compiled HLO, and the work of one device.
    Raises:
      ValueError: the program does not fit the chip's memory.
    """
    parts = sharding.batch_parts(mesh) * config.learn.microbatches * config.learn.minibatches
    rows = rows or parts
    lowered, state = abstract.lower_update(config, mesh, rows)
    compiled = abstract.compile_or_tell(lowered)
    text = compiled.as_text()
    module = hlo.parse(text)
    works = cost.works(module)
    model = abstract.model_of(config)
    line = roofline.measure(works, where)
    memory = _memory(compiled, state, kept_bytes(module, model.layers))
    flops = model_flops(config, rows) / mesh.size
    report = Report(
        program="update",
        topology=f"{where.chip.name}:{'x'.join(map(str, where.shape))}",
        devices=mesh.size,
        mesh=dict(mesh.shape),
        rows=rows,
        row_tokens=config.batch.row_tokens,
        parameters=abstract.matrix_parameters(model)[0],
        memory=memory,
        host_bytes=compiled.memory_analysis().host_argument_size_in_bytes,
        capacity=where.chip.memory_bytes,
        largest_rows=_largest_rows(memory, where.chip.memory_bytes, rows, parts),
        model_flops=flops,
        roofline=line,
        seconds={
            "compute": line.compute_seconds,
            "memory": line.memory_seconds,
            "interconnect": line.network_seconds,
        },
        bound=line.bound,
        utilisation=line.utilisation(flops, where.chip),
        compiler_flops=float(compiled.cost_analysis().get("flops", 0.0)),
    )
    return report, text, works


def model_flops(config: settings.RunConfig, rows: int) -> float:
    """Count what the update's mathematics needs, without recomputation.

    6 per token and parameter of a product (2 forward, 4 backward), and causal attention over whole
    rows: of each of two products half the pairs. Each further pass over the rows for
    log-probabilities, of a reference or of the old policy, adds a forward third.
    """
    model, learning = abstract.model_of(config), config.learn
    tokens = rows * config.batch.row_tokens
    products = 2 * abstract.matrix_parameters(model)[1] * tokens
    pairs = model.heads * model.head_dim * config.batch.row_tokens / 2
    attention = 4 * model.layers * pairs * tokens
    steps = learning.epochs * learning.minibatches
    passes = 3 * learning.epochs
    passes += learning.objective.kl_coefficient > 0 or learning.measure_kl
    passes += steps > 1  # of the policy before the first step
    return passes * (products + attention)


def lines(report: Report) -> Iterator[str]:
    """Write a report for a person."""
    mesh = " ".join(f"{name}={size}" for name, size in report.mesh.items())
    yield f"{report.program} on {report.topology} ({report.devices} chips), mesh {mesh}"
    yield (
        f"{report.rows} rows of {report.row_tokens} tokens, {report.parameters / 1e9:.2f}e9 "
        f"parameters"
    )
    yield from abstract.memory_lines(report.memory, report.capacity)
    if report.host_bytes:
        yield f"  in host memory           {report.host_bytes / 1e9:9.3f} GB"
    yield f"  largest batch that fits   at least {report.largest_rows} rows, by these bytes"
    line = report.roofline
    yield "work of one chip:"
    ratio = line.matrix_flops / report.model_flops
    yield f"  FLOPs of products        {line.matrix_flops:9.3e}, {ratio:.3f} x the model's"
    yield f"  FLOPs of the model       {report.model_flops:9.3e}"
    yield f"  other FLOPs              {line.other_flops:9.3e}"
    yield f"  XLA, loop bodies once    {report.compiler_flops:9.3e}"
    yield f"  bytes of main memory     {line.memory_bytes:9.3e}"
    for kind, exchange in line.exchanges.items():
        yield (
            f"  {kind:<24} {exchange.wire_bytes:9.3e} bytes in {exchange.count} calls, "
            f"{exchange.seconds * 1e3:.1f} ms"
        )
    for what, times in line.unknown.items():
        yield f"  not counted: {what}, {times} times"
    yield "roofline at published rates:"
    for name, seconds in report.seconds.items():
        share = seconds / line.compute_seconds if line.compute_seconds else 0.0
        yield f"  {name:<24} {seconds * 1e3:9.1f} ms, {share:.2f} x compute"
    yield f"  bound by {report.bound}; model FLOPs utilisation {report.utilisation:.1%} at most"


def largest(works: list[cost.Work], count: int) -> Iterator[str]:
    """List the instructions that cost most, by resource."""
    if not count:
        return
    for field in ("matrix_flops", "memory_bytes"):
        yield f"largest by {field}:"
        for work in sorted(works, key=lambda w: -w.times * getattr(w, field))[:count]:
            yield f"  {work.times * getattr(work, field):9.3e} x{work.times} {_where(work)}"
    yield "largest collectives, bytes:"
    exchanges = [work for work in works if work.collective]
    for work in sorted(exchanges, key=lambda w: -w.times * w.collective.bytes)[:count]:
        exchange = work.collective
        size = f"{work.times * exchange.bytes:9.3e} x{work.times}"
        yield f"  {size} {exchange.kind} of {len(exchange.group)}, {_where(work)}"


def _stretch(config: settings.RunConfig, devices: int) -> settings.RunConfig:
    """Give the mesh axis `fsdp` the devices that the other axes leave."""
    sizes = dataclasses.asdict(config.mesh)
    others = 1
    for name, size in sizes.items():
        others *= 1 if name == "fsdp" else size
    if devices % others:
        raise ValueError(
            f"mesh {sizes}: the axes beside fsdp take {others} devices, which do not divide the "
            f"slice's {devices}. Change one of them."
        )
    mesh = dataclasses.replace(config.mesh, fsdp=devices // others)
    return dataclasses.replace(config, mesh=mesh)


def _memory(compiled, state, activations: int) -> dict[str, int]:
    """Split what the program holds at its peak by kind."""
    stats = compiled.memory_analysis()
    params, moments = (abstract.device_bytes(tree) for tree in (state.params, state.opt_state))
    reference = abstract.device_bytes(state.reference)
    results = stats.output_size_in_bytes - stats.alias_size_in_bytes
    return {
        "parameters": params,
        "optimiser": moments,
        "reference": reference,
        "batch and curriculum": stats.argument_size_in_bytes - params - moments - reference,
        "activations": activations,
        "temporaries": stats.temp_size_in_bytes - activations + results,
        "code": stats.generated_code_size_in_bytes,
    }


def kept_bytes(module: hlo.Module, layers: int) -> int:
    """Count what forward passes keep for backward passes: stacks that a loop over layers fills.

    A stack is an array of main memory with the layers first that a forward loop changes.
    """
    most = 0.0
    for computation in module.computations.values():
        for loop in computation.instructions:
            source = loop.word("op_name")
            if loop.opcode != "while" or "jvp(" not in source or "transpose(" in source:
                continue
            body = module.computations[loop.called()["body"]]
            changed = [
                body[name].array
                for name in body.root.operands
                if body[name].opcode != "get-tuple-element" and body[name].arrays
            ]
            stacks = [a for a in changed if a.sizes[:1] == (layers,) and not a.space]
            most = max(most, sum(array.bytes for array in stacks))
    return round(most)


def _largest_rows(memory: dict[str, int], capacity: float, rows: int, parts: int) -> int:
    """Let everything but parameters, optimiser, reference and code grow with the rows."""
    grows = ("batch and curriculum", "activations", "temporaries")
    growing = sum(memory[name] for name in grows)
    fixed = sum(memory.values()) - growing
    return int((capacity - fixed) / growing * rows) // parts * parts if growing else rows


def _where(work: cost.Work) -> str:
    return f"{work.name} ({work.opcode}) {work.source[-100:]}"
