"""Where arrays live on the device mesh.

Comes in: a model config and a mesh. Goes out: a NamedSharding per parameter, and those of batches.
Arrays name their axes with words (`transformer.AXES`); `rules` maps words to mesh axes.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils

from spade_jax.policy import layout, rules, transformer


def make_mesh(
    data: int = 1, fsdp: int = 1, tensor: int = 1, expert: int = 1, devices=None
) -> jax.sharding.Mesh:
    """Arrange devices in the axes of `rules.MESH_AXES`.

    Args:
        data: copies of the parameters, each with its part of the batch.
        fsdp: parts that both the batch and the parameters are cut into.
        tensor: parts that heads, feed-forward width and vocabulary are cut into.
        expert: parts that the experts of a layer are cut into.
        devices: the devices to use; all of this program's by default.
    Raises:
        ValueError: the product is not the number of devices.
    """
    devices = jax.devices() if devices is None else devices
    shape = (data, fsdp, tensor, expert)
    if math.prod(shape) != len(devices):
        raise ValueError(
            f"mesh data={data} x fsdp={fsdp} x tensor={tensor} x expert={expert} needs "
            f"{math.prod(shape)} devices and there are {len(devices)}; set the sizes so that their "
            f"product is {len(devices)}."
        )
    # The default type is Explicit, which would ask for a sharding in every operation.
    types = (jax.sharding.AxisType.Auto,) * len(shape)
    # Several axes may share one of the slice's: tensor takes 4 of 16 chips. jax.make_mesh allows
    # that on v5e only.
    grid = mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
    return jax.sharding.Mesh(grid, rules.MESH_AXES, axis_types=types)


def param_shardings(config: transformer.ModelConfig, mesh: jax.sharding.Mesh) -> dict:
    """Give the NamedSharding of every parameter, in the tree of `transformer.init`.

    Raises:
        ValueError: a parameter's axis does not divide into the mesh axis it is mapped to.
    """
    shapes = jax.eval_shape(lambda key: transformer.init(config, key), jax.random.key(0))
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: _param_sharding(path, leaf.shape, mesh), shapes
    )


def part_sharding(
    path: tuple[str, ...], leading: int, mesh: jax.sharding.Mesh
) -> jax.sharding.NamedSharding:
    """Give the sharding of one parameter without its first `leading` axes: one layer, one role."""
    words = functools.reduce(lambda part, name: part[name], path, transformer.AXES)
    return jax.sharding.NamedSharding(mesh, rules.spec(*words[leading:]))


def batch_sharding(mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
    """Cut the first axis of an array into the parts of a batch."""
    return jax.sharding.NamedSharding(mesh, rules.spec("batch"))


def cache_sharding(params: dict) -> jax.sharding.NamedSharding | None:
    """Cut the arrays of a `cache.Cache` by key-value heads, on the mesh that parameters live on.

    Returns:
        None where they live on one device, or on none yet.
    """
    where = getattr(jax.tree.leaves(params)[0], "sharding", None)
    if not isinstance(where, jax.sharding.NamedSharding) or where.mesh.size == 1:
        return None
    return jax.sharding.NamedSharding(where.mesh, rules.spec("rows", "kv_heads"))


def replicated(mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
    """Keep a copy on every device."""
    return jax.sharding.NamedSharding(mesh, rules.spec())


def batch_parts(mesh: jax.sharding.Mesh) -> int:
    """Count the parts a batch is cut into: its rows must be a multiple."""
    return math.prod(mesh.shape[axis] for axis in rules.RULES["batch"])


def _param_sharding(path, shape, mesh):
    words = transformer.AXES
    for entry in path:
        words = words[entry.key]
    name = "/".join(entry.key for entry in path)
    for word, size in zip(words, shape, strict=True):
        axis = rules.RULES[word]
        if axis is not None and size % mesh.shape[axis]:
            parts = mesh.shape[axis]
            raise ValueError(
                f"parameter {name}{shape}: its axis {word!r}={size} must be a multiple of mesh "
                f"axis {axis!r}={parts}; change {axis} or make the model's size "
                f"{size // parts * parts or parts} or {-(-size // parts) * parts}."
            )
    return jax.sharding.NamedSharding(mesh, rules.spec(*words))


def place(tree: Any, layout: Any) -> Any:
    """Lay out values that every process holds, or arrays that lie on the devices already.

    Args:
        layout: one sharding, or a tree of them.
    """

    def plain(leaf):
        local = isinstance(leaf, jax.Array) and leaf.is_fully_addressable
        return np.asarray(leaf) if local else leaf

    if jax.process_count() > 1:
        # JAX 0.10 makes an array that cannot be read of a local one that several processes shall
        # hold whole; of NumPy's it makes a sound one.
        tree = jax.tree.map(plain, tree)
    return jax.device_put(tree, layout)


def gather(params: dict, config: transformer.ModelConfig, mesh: jax.sharding.Mesh) -> dict:
    """Give this process a copy of the parameters of a mesh, in one call of all processes.

    A copy is cut by the tensor axis over as many of the process's devices as its sizes divide into;
    further devices hold further copies. Matrices travel in the dtype of the products.

    Returns:
        arrays on this process's devices, for its sampler.
    """
    every = sorted(mesh.devices.flat, key=lambda device: (device.process_index, device.id))
    here = [device for device in every if device.process_index == jax.process_index()]
    target = sampling_mesh(config, here)
    layout_here = param_shardings(config, target)

    def take(leaf, place):
        pieces = [shard.data for shard in leaf.addressable_shards]
        return jax.make_array_from_single_device_arrays(leaf.shape, place, pieces)

    params = _narrow(params, config.compute_dtype)
    everywhere = _tensor_mesh(target.shape["tensor"], every)
    copied = jax.device_put(params, param_shardings(config, everywhere))
    return jax.tree.map(take, copied, layout_here)


def sampling_mesh(config: transformer.ModelConfig, devices: list) -> jax.sharding.Mesh:
    """Arrange one process's devices for its sampler."""
    sizes = (config.heads, config.kv_heads, config.mlp_width, config.vocab_size, len(devices))
    return _tensor_mesh(math.gcd(*sizes), devices)


@functools.partial(jax.jit, static_argnames="dtype")
def _narrow(params, dtype):
    return layout.narrowed(params, transformer.AXES, dtype)


def _tensor_mesh(cut: int, devices: list) -> jax.sharding.Mesh:
    """Arrange devices in copies cut by tensor, in this order: `make_mesh` may choose another."""
    grid = np.array(devices).reshape(-1, 1, cut, 1)
    types = (jax.sharding.AxisType.Auto,) * grid.ndim
    return jax.sharding.Mesh(grid, rules.MESH_AXES, axis_types=types)
