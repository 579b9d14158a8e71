"""Parameters in the form that sampling reads: an array per layer, in the dtype of the products.

Comes in: parameters as from `transformer.init`, layers in a stack. Goes out: layers one by one,
their matrices rounded to 8 bits where that is asked for. A step reads every matrix once, so the
form is made once per version of the parameters.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from spade_jax.policy import layout, sharding, transformer

_WHOLE, _SCALE = "whole", "scale_of_whole"  # of a matrix that is rounded to 8 bits


@dataclasses.dataclass(frozen=True, kw_only=True)
class Weights:
    """Parameters in the form that a session reads; what they were made of is not kept."""

    ready: dict  # from `lay_out`
    exact: dict | None  # as from `transformer.init`, for `decode.extend` where `ready` is rounded
    cache: jax.sharding.Sharding | None  # where the cache lies, see `sharding.cache_sharding`


def weights(params: dict, config: transformer.ModelConfig, bits: int = 16) -> Weights:
    """Lay parameters out for a session; arguments as of `lay_out`."""
    return Weights(
        ready=lay_out(params, config, bits),
        exact=None if bits == 16 else params,
        cache=sharding.cache_sharding(params),
    )


def lay_out(params: dict, config: transformer.ModelConfig, bits: int = 16) -> dict:
    """Turn the parameters of `transformer.init` into those of `decode.advance`.

    Args:
        params: as from `transformer.init`.
        config: the model's.
        bits: 8 rounds the matrices of the layers to 8 bits, one scale per output; 16 keeps them.
    Returns:
        the same tree with "layers" a list of trees, one per layer, and matrices in the dtype of the
        products: each step reads them all.
    """
    rest = {name: part for name, part in params.items() if name != "layers"}
    rest = layout.narrowed(rest, transformer.AXES, config.compute_dtype)
    stacked, dtype = transformer.stacked(params, config), config.compute_dtype
    layers = [_copied(stacked, index, bits, dtype) for index in indices(config)]
    return {**rest, "layers": layers}


def indices(config: transformer.ModelConfig) -> list[jax.Array]:
    """Give the places of a stack's layers, on the device."""
    return jax.device_put([np.int32(index) for index in range(config.layers)])


def pick(stacked: dict, index: jax.Array) -> dict:
    """Take one layer out of a stack."""
    return jax.tree.map(
        lambda stack: jax.lax.dynamic_index_in_dim(stack, index, keepdims=False), stacked
    )


@functools.partial(jax.jit, static_argnames=("bits", "dtype"))
def _copied(stacked, index, bits, dtype):
    layer = pick(stacked, index)
    if bits == 16:
        return layout.narrowed(layer, transformer.AXES["layers"], dtype)
    return jax.tree_util.tree_map_with_path(_round, layer)


def _round(path, leaf):
    """Round a matrix to 8 bits, one scale for each of its outputs; leave vectors as they are.

    The letters of its name tell its axes: a matrix that ends in D writes into the residual stream
    and sums over all others (experts X apart), any other sums over D. The router stays exact: it
    decides, and is small.
    """
    axes = path[-1].key.rpartition("_")[2]
    if len(axes) != leaf.ndim or "D" not in axes or "router" in path[-1].key:
        return leaf
    summed = set(axes[:-1]) - {"X"} if axes[-1] == "D" else {"D"}
    inputs = tuple(i for i, a in enumerate(axes) if a in summed)
    array = leaf.astype(jnp.float32)
    scale = jnp.maximum(jnp.max(jnp.abs(array), axis=inputs, keepdims=True), 1e-12) / 127
    return {_WHOLE: jnp.round(array / scale).astype(jnp.int8), _SCALE: scale}


def exact(tree: dict) -> dict:
    """Undo the rounding of a layer, up to what it lost."""
    if not isinstance(tree, dict):
        return tree
    if _WHOLE in tree:
        return tree[_WHOLE].astype(jnp.float32) * tree[_SCALE]
    return {name: exact(branch) for name, branch in tree.items()}
