"""Ahead of time: one decode chunk on one host of a described slice.

Comes in: a configuration and a topology. Goes out: what one chip holds and executes while the
sampler of its host advances every sequence by one chunk. Hosts sample apart from each other, with
the parameters cut over their own chips (`sharding.gather`), so one host stands for all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from launch import abstract, chips, cost, hlo, roofline
from spade_jax import machine, settings
from spade_jax.policy import (
    cache,
    decode,
    draw,
    laid_out,
    layout,
    platforms,
    sampler,
    sharding,
    transformer,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What one chip holds in a chunk of decoding, and what the chunk reads and takes."""

    program: str
    topology: str
    devices: int  # of the host
    parts: int  # that parameters and cache are cut into
    rows: int
    places: int
    steps: int
    memory: dict[str, int]  # bytes by kind
    capacity: float  # bytes
    least_bytes: float  # of the chunk: in each step every weight once, the full cache once
    roofline: roofline.Roofline  # of the chunk

    @property
    def fits(self) -> bool:
        """Say whether all of it fits the chip's memory."""
        return sum(self.memory.values()) <= self.capacity


def measure(
    config: settings.RunConfig, where: chips.Slice, mesh: jax.sharding.Mesh, rows: int = 0
) -> Report:
    """Compile a chunk of decoding, every row full.

    Args:
      mesh: of the whole slice.
      rows: sequences at a time; 0 takes those of the sampler's program that holds a host's share of
        the plays of an iteration.
    Raises:
      ValueError: the program does not fit the chip's memory.
    """
    model = abstract.model_of(config)
    every = list(mesh.devices.flat)
    host = [device for device in every if device.process_index == every[0].process_index]
    own = sharding.sampling_mesh(model, host)
    rows = rows or _rows(config, len(host) / len(every))
    places, sampling = config.rollout.context_tokens, config.sampler
    given = arguments(model, own, rows, places, sampling.weight_bits, sampling.cache_bits)
    compiled = abstract.compile_or_tell(lower(model, given))
    stands = {device.id: place for place, device in enumerate(every)}
    coordinates = tuple(where.coordinates[stands[device.id]] for device in own.devices.flat)
    works = cost.works(hlo.parse(compiled.as_text()), unknown_trips=sampler.STEPS)
    stats = compiled.memory_analysis()
    weights, past = (abstract.device_bytes(tree) for tree in given[:2])
    return Report(
        program="decode chunk",
        topology=f"{where.chip.name}:{'x'.join(map(str, where.shape))}",
        devices=len(host),
        parts=own.shape["tensor"],
        rows=rows,
        places=places,
        steps=sampler.STEPS,
        memory={
            "parameters": weights,
            "exact, for prefill": _kept_for_prefill(model, own, sampling.weight_bits),
            "training state": abstract.device_bytes(abstract.train_state(config, mesh)),
            "cache": past,
            "temporaries": stats.temp_size_in_bytes + stats.output_size_in_bytes,
            "code": stats.generated_code_size_in_bytes,
        },
        capacity=where.chip.memory_bytes,
        least_bytes=sampler.STEPS * (weights - _looked_up(model, given[0]) + past),
        roofline=roofline.measure(works, dataclasses.replace(where, coordinates=coordinates)),
    )


def lines(report: Report) -> Iterator[str]:
    """Write a report for a person."""
    line, steps = report.roofline, report.steps
    yield (
        f"{report.program} of {steps} steps on one host of {report.topology} ({report.devices} "
        f"chips, {report.parts} parts)"
    )
    yield f"{report.rows} sequences of {report.places} tokens"
    yield from abstract.memory_lines(report.memory, report.capacity)
    yield "one step on one chip:"
    ratio = line.memory_bytes / report.least_bytes
    yield f"  bytes of main memory     {line.memory_bytes / steps:9.3e}, {ratio:.2f} x the least"
    for name, seconds in (
        ("compute", line.compute_seconds),
        ("memory", line.memory_seconds),
        ("interconnect", line.network_seconds),
    ):
        yield f"  {name:<24} {seconds / steps * 1e3:9.2f} ms"
    rate = report.rows * steps / line.seconds
    yield f"  bound by {line.bound}; {rate:.0f} tokens/s of a host at most"


def arguments(
    model: transformer.ModelConfig,
    mesh: jax.sharding.Mesh,
    rows: int,
    places: int,
    weight_bits: int = 16,
    cache_bits: int = 16,
) -> tuple[Any, ...]:
    """Describe what `decode.advance` takes: weights, cache, rows, end tokens, when to stop."""
    whole = sharding.replicated(mesh)
    params = _stacked(model, mesh)
    ready = jax.eval_shape(lambda params: laid_out.lay_out(params, model, weight_bits), params)
    places_of = {
        jax.tree_util.keystr(path): leaf.sharding.spec
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    }

    def cut(path, leaf):
        """As the stack of all layers is cut, but where a scale has one place for many."""
        names = [e for e in path if isinstance(getattr(e, "key", None), str)]
        spec = next(
            found for n in range(len(names), 0, -1)
            if (found := places_of.get(jax.tree_util.keystr(tuple(names[:n])))) is not None
        )  # fmt: skip
        axes = [*spec, *[None] * leaf.ndim]
        axes = axes[1:] if names[0].key == "layers" else axes
        kept = [None if size == 1 else axis for size, axis in zip(leaf.shape, axes, strict=False)]
        place = jax.sharding.NamedSharding(mesh, type(whole.spec)(*kept))
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)

    ready = jax.tree_util.tree_map_with_path(cut, ready)
    past = jax.eval_shape(lambda: cache.empty(model, rows, places, cache_bits))
    int_B, float_B = (jax.ShapeDtypeStruct((rows,), d) for d in (jnp.int32, jnp.float32))
    state = decode.Rows(
        tokens_B=int_B,
        lengths_B=int_B,
        steps_B=int_B,
        limits_B=int_B,
        roles_B=int_B,
        seeds_B=jax.ShapeDtypeStruct((rows,), jnp.uint32),
        shape=draw.Shape(temperatures_B=float_B, top_k_B=int_B, top_p_B=float_B),
    )
    ends, stop = jax.ShapeDtypeStruct((2,), jnp.int32), jax.ShapeDtypeStruct((), jnp.int32)
    held = sharding.cache_sharding(params) or whole
    return (ready, _placed(past, held), *(_placed(tree, whole) for tree in (state, ends, stop)))


def lower(model: transformer.ModelConfig, given: tuple[Any, ...]) -> jax.stages.Lowered:
    """Trace the decode program for described devices."""
    weights, *rest = given
    (device, *_) = jax.tree.leaves(weights)[0].sharding.device_set
    with platforms.compiled_for(device.platform):
        return decode.advance.lower(weights, model, *rest, steps=sampler.STEPS, truncated=False)


def _stacked(model, mesh) -> Any:
    """Describe what `sharding.gather` gives a sampler."""

    def make(key):
        params = transformer.init(model, key)
        return layout.narrowed(params, transformer.AXES, model.compute_dtype)

    shapes, places = jax.eval_shape(make, jax.random.key(0)), sharding.param_shardings(model, mesh)
    return jax.tree.map(
        lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
        shapes,
        places,
    )


def _kept_for_prefill(model, mesh, weight_bits: int) -> int:
    """Bytes of the exact parameters beside rounded ones, see `laid_out.Weights`."""
    return 0 if weight_bits == 16 else abstract.device_bytes(_stacked(model, mesh))


def _placed(tree, where):
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), tree
    )


def _looked_up(model, weights) -> int:
    """Bytes of an embedding of which a step reads a few rows."""
    return 0 if model.tied_embeddings else abstract.device_bytes(weights["embed"])


def _rows(config: settings.RunConfig, share: float) -> int:
    """Give the smallest program of the sampler that holds a host's share of the plays."""
    rollout = config.rollout
    arms = rollout.plays + rollout.hinted_plays
    plays = rollout.environments * rollout.seeds * arms * share
    buckets = machine.batch_buckets(config.sampler.sequences)
    return next((bucket for bucket in buckets if bucket >= plays), buckets[-1])
