"""Where arrays live while a layer runs: weights gathered, activations cut.

Left to itself the partitioner keeps a layer's weights cut along the width and sums the products of
all devices instead, which moves activations and not weights: at 4,096 tokens a chip many times as
many bytes. A mesh of None, one device or a sampler, leaves everything as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from spade_jax.policy import rules


def stream(hidden_BTD: jax.Array, mesh: jax.sharding.Mesh | None) -> jax.Array:
    """Cut a residual stream by rows, and by tokens over the parts of a layer where they divide.

    What a layer keeps for its backward pass is the stream: cut by tokens, parts of a layer do not
    each keep all of it (https://arxiv.org/abs/2205.05198, sequence parallelism).
    """
    if mesh is None:
        return hidden_BTD
    parts = mesh.shape[rules.RULES["stream"]]
    whole = hidden_BTD.shape[1] % parts
    return _constrain(hidden_BTD, ("batch",) if whole else ("batch", "stream"), mesh)


def gathered(tree: Any, axes: Any, dtype: str, mesh: jax.sharding.Mesh | None) -> Any:
    """Bring weights to every part of the batch, already in the dtype of the products.

    Casting comes first, so that half the bytes travel. Other axes stay cut. Vectors are left alone,
    and matrices of experts, which `moe` gathers where it works on one part of the batch.

    Args:
        tree: parameters of one layer, or of the heads.
        axes: words of their axes, a tree that holds at least the same names; of a stack of layers
            the words of one layer come last.
    """
    if mesh is None:
        return tree

    def gather(leaf, words):
        alone = "embed" not in words or "experts" in words
        return leaf if alone else _gather(leaf, words, dtype, mesh)

    return jax.tree.map(gather, tree, _words(tree, axes))


def narrowed(tree: Any, axes: Any, dtype: str) -> Any:
    """Cast what `gathered` casts and move nothing; branches without words stay as they are."""

    def cast(path, leaf):
        words = axes
        for entry in path:
            words = words.get(entry.key, ()) if isinstance(words, dict) else ()
        return leaf.astype(dtype) if "embed" in words else leaf

    return jax.tree_util.tree_map_with_path(cast, tree)


def on_parts(
    function: Callable[..., Any],
    tree: Any,
    axes: Any,
    dtype: str,
    arrays: tuple[jax.Array, ...],
    mesh: jax.sharding.Mesh,
) -> Any:
    """Call `function(tree, *arrays)` on every part of the batch, with weights gathered once.

    What the weights' gradient adds up within a part, over a loop say, is summed over the parts
    once, behind it, and cut as the weights are; left to the partitioner every turn of the loop
    would sum it. Mesh axes that do not cut the batch stay with the partitioner.

    Args:
        tree: weights, cut; `axes` and `dtype` as of `gathered`.
        arrays: cut by rows, as are the results.
    """
    names = rules.RULES["batch"]
    words = _words(tree, axes)

    def part(tree, *arrays):
        wholes = jax.tree.map(lambda leaf, words: whole(leaf, words, dtype), tree, words)
        return function(wholes, *arrays)

    rows = rules.part_spec(("batch",), names)
    cut = jax.tree.map(lambda _, words: rules.part_spec(words, names), tree, words)
    return jax.shard_map(
        part,
        mesh=mesh,
        in_specs=(cut, *[rows] * len(arrays)),
        out_specs=rows,
        axis_names=set(names),
        check_vma=False,
    )(tree, *arrays)


def whole(leaf: jax.Array, words: tuple[str, ...], dtype: str) -> jax.Array:
    """Gather a weight inside a `jax.shard_map` over the batch; its gradient is summed and cut."""
    if "embed" not in words:
        return leaf
    place, name = words.index("embed"), rules.RULES["embed"]
    return jax.lax.all_gather(leaf.astype(dtype), name, axis=place, tiled=True)


def _words(tree: Any, axes: Any) -> Any:
    """Find the words of every array of a tree; of a stack those of one layer."""

    def find(path, leaf):
        words = axes
        for entry in path:
            words = words[entry.key]
        return tuple(words[len(words) - leaf.ndim :])

    return jax.tree_util.tree_map_with_path(find, tree)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def _gather(leaf: jax.Array, words: tuple[str, ...], dtype: str, mesh: jax.sharding.Mesh):
    wide = ["width" if word == "embed" else word for word in words]
    return _constrain(leaf.astype(dtype), wide, mesh)


def _gather_forward(leaf, words, dtype, mesh):
    return _gather(leaf, words, dtype, mesh), jnp.zeros((), leaf.dtype)


def _gather_backward(words, dtype, mesh, like, change):
    """Sum what the parts of the batch ask for and cut it at once: each part keeps its own.

    The derivative of a constraint is the same constraint, which would give every part all of it.
    """
    return (_constrain(change, words, mesh).astype(like.dtype),)


_gather.defvjp(_gather_forward, _gather_backward)


def _constrain(x: jax.Array, words, mesh: jax.sharding.Mesh) -> jax.Array:
    place = jax.sharding.NamedSharding(mesh, rules.spec(*words))
    return jax.lax.with_sharding_constraint(x, place)
