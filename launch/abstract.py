"""Shapes, dtypes and places of what the compiled programs take, without an array in memory.

Comes in: the configuration of a run and a mesh, of real or of described devices. Goes out: the
program, lowered, and what its arguments weigh.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any

import jax

from spade_jax import batch, learn, loop, optimizer, settings
from spade_jax.policy import platforms, sharding, transformer


def model_of(config: settings.RunConfig) -> transformer.ModelConfig:
    """Give the model of a configuration.

    Raises:
      ValueError: the configuration names no model.
    """
    if config.policy.model is None:
        raise ValueError(
            "policy.model is not set: sizes are needed where no weights are read. Set policy.model."
        )
    return config.policy.model


def train_state(config: settings.RunConfig, mesh: jax.sharding.Mesh) -> learn.TrainState:
    """Give what `learn.init` makes, where it lies."""
    model = model_of(config)
    layout, whole = sharding.param_shardings(model, mesh), sharding.replicated(mesh)
    params = jax.eval_shape(lambda key: transformer.init(model, key), jax.random.key(0))
    state = jax.eval_shape(
        lambda params: learn.init(
            params, model, config.learning(), config.curriculum, config.pool.slots, mesh
        ),
        params,
    )
    places = dataclasses.replace(
        jax.tree.map(lambda _: whole, state),
        params=layout,
        opt_state=optimizer.layout(params, config.learning(), layout, whole),
        reference=None if state.reference is None else layout,
    )
    return jax.tree.map(
        lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
        state,
        places,
    )


def train_batch(config: settings.RunConfig, mesh: jax.sharding.Mesh, rows: int) -> batch.Batch:
    """Give what `batch.build` makes of `rows` rows of `batch.row_tokens` tokens."""
    made = batch.build(  # an empty one on this machine, for its shapes
        [],
        [],
        slots=[],
        fresh={},
        pool_slots=config.pool.slots,
        shape=loop.table_shape(config),
        config=dataclasses.replace(config.batch, rows_multiple=rows, rows=()),
        mesh=sharding.make_mesh(devices=jax.devices("cpu")[:1]),
    )
    places = {True: sharding.batch_sharding(mesh), False: sharding.replicated(mesh)}
    arrays = {
        field.name: getattr(made.batch, field.name) for field in dataclasses.fields(batch.Batch)
    }
    return batch.Batch(
        **{
            name: jax.ShapeDtypeStruct(
                array.shape, array.dtype, sharding=places[name.endswith("_BT")]
            )
            for name, array in arrays.items()
        }
    )


def lower_update(config: settings.RunConfig, mesh: jax.sharding.Mesh, rows: int):
    """Lower the update of `rows` rows; returns it with the state it takes."""
    state = train_state(config, mesh)
    rows_of = train_batch(config, mesh, rows)
    with platforms.compiled_for(mesh.devices.flat[0].platform):
        lowered = learn.update.lower(
            state, rows_of, model_of(config), config.learning(), config.curriculum, mesh
        )
    return lowered, state


def compile_or_tell(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    """Compile.

    Raises:
      ValueError: the program does not fit the chip's memory.
    """
    try:
        return lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        told = re.sub(r"\s+", " ", str(error))[:600]
        raise ValueError(
            f"the program does not fit: {told}. Use fewer rows, more microbatches, or a larger "
            "slice."
        ) from error


def memory_lines(memory: dict[str, int], capacity: float) -> Iterator[str]:
    """Write what one chip holds, by kind."""
    yield "bytes on one chip:"
    for name, size in memory.items():
        yield f"  {name:<24} {size / 1e9:9.3f} GB"
    held = sum(memory.values())
    verdict = "fits" if held <= capacity else "does NOT fit"
    yield f"  {'together':<24} {held / 1e9:9.3f} GB, {verdict} {capacity / 1e9:.0f} GB"


def device_bytes(tree: Any) -> int:
    """Add up what one device holds of arrays or of described ones; host memory does not count."""
    total = 0
    for leaf in jax.tree.leaves(tree):
        if leaf.sharding and leaf.sharding.memory_kind == "pinned_host":
            continue
        shape = leaf.sharding.shard_shape(leaf.shape) if leaf.sharding else leaf.shape
        total += math.prod(shape) * leaf.dtype.itemsize
    return total


def matrix_parameters(model: transformer.ModelConfig) -> tuple[int, int]:
    """Count parameters: all, and those that one token is multiplied with.

    The second leaves out norms, the embedding where it is only looked up, and the experts that a
    token does not visit.
    """
    shapes = jax.eval_shape(lambda key: transformer.init(model, key), jax.random.key(0))
    everything, used = 0, 0.0
    for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
        name = path[-1].key
        everything += leaf.size
        if name == "embed" and not model.tied_embeddings:
            continue
        if name.startswith("scale") or "bias" in name or name.startswith("roles"):
            continue
        share = model.experts_per_token / model.experts if "_X" in name and model.experts else 1
        used += leaf.size * (1.0 if name.startswith("router") else share)
    return everything, round(used)
