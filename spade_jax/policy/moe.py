"""Mixture of experts: each token goes through the few experts that its router likes best.

Comes in: hidden states. Goes out: their feed-forward output. Tokens are sorted by expert, so each
expert is one stretch of a ragged matrix product and no token is dropped. On a mesh that was entered
with `jax.set_mesh` each part of the batch sorts its own tokens, and each part of the axis "expert"
works on its own experts, whose outputs are summed; without an entered mesh the partitioner decides,
with the same result. Whoever wants gradients on TPUs enters one: the kernel of `matrices_gradient`
is no program that the partitioner can cut.

Source: Qwen3 technical report, https://arxiv.org/abs/2505.09388; sorted dispatch as in MegaBlocks,
https://arxiv.org/abs/2211.15841.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.megablox.gmm import tgmm  # the package's `gmm` hides it

from spade_jax.policy import layout, matmul, platforms, rules, sizes

# Words of the axes of gate_XDF, up_XDF and down_XFD.
WORDS = (("experts", "embed", "mlp"), ("experts", "embed", "mlp"), ("experts", "mlp", "embed"))

# Rows that TPUs want multiples of: their compiler's ragged product, which is one of all rows by all
# matrices otherwise (libtpu 0.0.42), and the blocks of the kernel.
_RAGGED, _BLOCK = 8, 128


def route(
    config: sizes.ModelConfig, router_DX: jax.Array, x_ND: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Choose the experts of each token.

    Returns:
        experts_NK (K = `experts_per_token` here), and their float32 weights_NK: the softmax over
        all experts at the chosen ones, divided by its sum where `norm_expert_weights`.
    """
    scores_NX = matmul.einsum("ND,DX->NX", x_ND, router_DX).astype(jnp.float32)
    shares_NX = jax.nn.softmax(scores_NX, axis=-1)
    weights_NK, experts_NK = jax.lax.top_k(shares_NX, config.experts_per_token)
    if config.norm_expert_weights:
        weights_NK = weights_NK / jnp.sum(weights_NK, axis=-1, keepdims=True)
    return experts_NK, weights_NK


def loads(config: sizes.ModelConfig, experts_NK: jax.Array, counted_N: jax.Array) -> jax.Array:
    """Give each expert's share of the assignments, relative to an even spread.

    Args:
        config: the model's.
        experts_NK: as from `route`.
        counted_N: 1 for real tokens, 0 for padding.
    Returns:
        load_X, float32: 1 everywhere when experts are used evenly; their mean is always 1.
    """
    chosen_NX = jnp.sum(jax.nn.one_hot(experts_NK, config.experts, dtype=jnp.float32), axis=1)
    counts_X = jnp.sum(chosen_NX * counted_N[:, None].astype(jnp.float32), axis=0)
    return counts_X * config.experts / jnp.maximum(jnp.sum(counts_X), 1.0)


def mix(
    config: sizes.ModelConfig,
    x_ND: jax.Array,
    experts_NK: jax.Array,
    weights_NK: jax.Array,
    matrices: tuple[jax.Array, jax.Array, jax.Array],
) -> jax.Array:
    """Sum the outputs of each token's experts, weighted.

    Args:
        config: the model's.
        x_ND: tokens.
        experts_NK: as from `route`.
        weights_NK: as from `route`.
        matrices: gate_XDF, up_XDF, down_XFD.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.size == 1:
        matrices = tuple(matrix.astype(x_ND.dtype) for matrix in matrices)
        product = jax.lax.ragged_dot if mesh.empty else _product
        return _mix_held(config, x_ND, experts_NK, weights_NK, *matrices, first=0, product=product)
    parts = mesh.shape[rules.EXPERT]

    def part(x_ND, experts_NK, weights_NK, *matrices):
        matrices = [layout.whole(m, w, x_ND.dtype) for m, w in zip(matrices, WORDS, strict=True)]
        first = jax.lax.axis_index(rules.EXPERT) * (config.experts // parts)
        mixed_ND = _mix_held(
            config, x_ND, experts_NK, weights_NK, *matrices, first=first, product=_product
        )
        return jax.lax.psum(mixed_ND, summed) if summed else mixed_ND

    axes = (rules.EXPERT, rules.RULES["mlp"])
    summed = tuple(axis for axis in axes if mesh.shape[axis] > 1)
    tokens = rules.spec("batch")
    spread = jax.shard_map(
        part,
        in_specs=(tokens, tokens, tokens, *[rules.spec(*words) for words in WORDS]),
        out_specs=tokens,
        check_vma=False,
    )
    return spread(x_ND, experts_NK, weights_NK, *matrices)


def _mix_held(config, x_ND, experts_NK, weights_NK, gate_XDF, up_XDF, down_XFD, *, first, product):
    """Do it for the experts first, first + 1, ... that the matrices hold; others add nothing.

    On TPUs the rows are filled up to a multiple of `_RAGGED` with the last one at a weight of 0.
    """
    held, chosen = gate_XDF.shape[0], experts_NK.shape[1]
    spare = (0, -experts_NK.size % _RAGGED if platforms.current() == "tpu" else 0)
    experts_M = jnp.pad(experts_NK.reshape(-1), spare, mode="edge")
    weights_M = jnp.pad(weights_NK.reshape(-1), spare).astype(jnp.float32)
    local_M = experts_M - first
    local_M = jnp.where((local_M >= 0) & (local_M < held), local_M, held)  # others sort last
    order_M = jnp.argsort(local_M, stable=True)
    tokens_M = jnp.minimum(order_M // chosen, len(x_ND) - 1)
    counts_X = jnp.bincount(local_M, length=held + 1)[:held].astype(jnp.int32)
    inputs_MD = x_ND[tokens_M]
    gate_MF = activation(config)(product(inputs_MD, gate_XDF, counts_X))
    outputs_MD = product(gate_MF * product(inputs_MD, up_XDF, counts_X), down_XFD, counts_X)
    # Rows behind the last stretch belong to no expert here, whatever the product left in them.
    inside_M = jnp.arange(len(order_M)) < jnp.sum(counts_X)
    weighted_MD = jnp.where(inside_M[:, None], outputs_MD, 0) * weights_M[order_M][:, None]
    summed_ND = jnp.zeros(x_ND.shape, jnp.float32).at[tokens_M].add(weighted_MD)
    return summed_ND.astype(x_ND.dtype)


@jax.custom_vjp
def _product(x_MI: jax.Array, matrices_XIO: jax.Array, counts_X: jax.Array) -> jax.Array:
    """Multiply each stretch of rows by its matrix, on one device."""
    return jax.lax.ragged_dot(x_MI, matrices_XIO, counts_X)


def _product_forward(x_MI, matrices_XIO, counts_X):
    return _product(x_MI, matrices_XIO, counts_X), (x_MI, matrices_XIO, counts_X)


def _product_backward(kept, change_MO):
    """Turn to a kernel for the matrices on TPUs, whose compiler multiplies all rows by all of them
    otherwise (libtpu 0.0.42)."""
    x_MI, matrices_XIO, counts_X = kept
    inside_M1 = jnp.arange(len(x_MI))[:, None] < jnp.sum(counts_X)
    change_MO = jnp.where(inside_M1, change_MO, 0)
    if platforms.current() == "tpu":
        d_matrices = matrices_gradient(x_MI, change_MO, counts_X).astype(matrices_XIO.dtype)
    else:
        _, pull = jax.vjp(lambda m: jax.lax.ragged_dot(x_MI, m, counts_X), matrices_XIO)
        d_matrices = pull(change_MO)[0]
    d_x = jax.lax.ragged_dot(change_MO, matrices_XIO.swapaxes(1, 2), counts_X)
    return jnp.where(inside_M1, d_x, 0), d_matrices, None


_product.defvjp(_product_forward, _product_backward)


def matrices_gradient(
    x_MI: jax.Array, change_MO: jax.Array, counts_X: jax.Array, interpret: bool = False
) -> jax.Array:
    """Multiply the stretches of two arrays of rows with each other, by the TPU's kernel.

    The kernel takes whole blocks of rows: others are filled up with rows that belong to no stretch.

    Args:
        interpret: run the kernel's steps without a TPU, slowly.
    Returns:
        x' change of each stretch, XIO in the dtype of the rows; 0 where a stretch is empty.
    """
    spare = ((0, -len(x_MI) % _BLOCK), (0, 0))
    x_MI, change_MO = jnp.pad(x_MI, spare), jnp.pad(change_MO, spare)
    tiles = tuple(_tile(size) for size in (len(x_MI), x_MI.shape[1], change_MO.shape[1]))
    return tgmm(x_MI.T, change_MO, counts_X, x_MI.dtype, tiles, interpret=interpret)


def _tile(size: int) -> int:
    """Give the largest block of at most 512 that divides a size, 128 where none does."""
    return next((tile for tile in (512, 384, 256) if size % tile == 0), _BLOCK)


def activation(config: sizes.ModelConfig):
    """Give the function of the gate."""
    return jax.nn.silu if config.activation == "silu" else functools.partial(jax.nn.gelu)
