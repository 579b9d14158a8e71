"""Where arrays live while a layer runs: weights gathered, activations cut.

Left to itself the partitioner keeps a layer's weights cut along the width and sums the products of
all devices instead, which moves activations and not weights: at 4,096 tokens a chip many times as
many bytes. A mesh of None, one device or a sampler, leaves everything as it is.
"""

from __future__ import annotations

from typing import Any

import jax

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

    Casting comes first, so that half the bytes travel. Other axes stay cut. Vectors are left alone.

    Args:
        tree: parameters of one layer, or of the heads.
        axes: words of their axes, a tree that holds at least the same names; of a stack of layers
            the words of one layer come last.
    """
    if mesh is None:
        return tree

    def gather(path, leaf):
        words = axes
        for entry in path:
            words = words[entry.key]
        words = words[len(words) - leaf.ndim :]
        if "embed" not in words:
            return leaf
        return _constrain(leaf.astype(dtype), ["width" if w == "embed" else w for w in words], mesh)

    return jax.tree_util.tree_map_with_path(gather, tree)


def _constrain(x: jax.Array, words, mesh: jax.sharding.Mesh) -> jax.Array:
    place = jax.sharding.NamedSharding(mesh, rules.spec(*words))
    return jax.lax.with_sharding_constraint(x, place)
