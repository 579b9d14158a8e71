"""Attention over packed rows: two ways to the same numbers.

Comes in: queries, keys and values of rows that hold several sequences, told apart by segment ids.
Goes out: what each token attended to, never across segments and never ahead.

"blockwise" holds the scores of one block of queries and one of keys at a time, in both passes; a
row no longer than a block is attended at once, the dense way. "splash" is the Pallas kernel for
TPUs. In the blockwise part arrays are named by what they are: queries and what follows them are
[B, T, K, G, C] with G queries to a key-value head, keys and values [B, S, K, C].
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_kernel as kernel,
)
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

from spade_jax.policy import matmul, rules

KINDS = ("blockwise", "splash")
Kind = Literal["blockwise", "splash"]
LANES = 128  # the kernel's blocks are multiples of it
KEPT = "attended"  # what a layer may keep for its backward pass goes by this name

_MASKED = -1e30  # finite, so that a row with nothing to attend gives numbers and not NaN


def attend(
    q_BTHC: jax.Array, k_BSKC: jax.Array, v_BSKC: jax.Array, mask_BTS: jax.Array, softcap: float = 0
) -> jax.Array:
    """Attend with grouped queries; softmax in float32.

    Args:
        q_BTHC: queries; head h uses key-value head h // (H / K).
        k_BSKC: keys of the S places that may be looked at.
        v_BSKC: values of the same places.
        mask_BTS: True where query t may look at place s.
        softcap: see `cap`.
    Returns:
        attended_BTHC in the dtype of the values.
    """
    rows, queries, heads, channels = q_BTHC.shape
    q_BTKGC = q_BTHC.reshape(rows, queries, k_BSKC.shape[2], -1, channels)
    scores_BKGTS = matmul.einsum("BTKGC,BSKC->BKGTS", q_BTKGC, k_BSKC, out="float32")
    scores_BKGTS = cap(scores_BKGTS * channels**-0.5, softcap)
    scores_BKGTS = jnp.where(mask_BTS[:, None, None], scores_BKGTS, _MASKED)
    weights_BKGTS = jax.nn.softmax(scores_BKGTS, axis=-1).astype(v_BSKC.dtype)
    return matmul.einsum("BKGTS,BSKC->BTKGC", weights_BKGTS, v_BSKC).reshape(q_BTHC.shape)


def cap(scores: jax.Array, limit: float) -> jax.Array:
    """Bend scores smoothly into (-limit, limit): limit tanh(scores / limit); 0 leaves them."""
    return scores if limit == 0 else limit * jnp.tanh(scores / limit)


def packed(
    q_BTHC: jax.Array,
    k_BTKC: jax.Array,
    v_BTKC: jax.Array,
    segments_BT: jax.Array,
    *,
    reach: jax.Array | None = None,
    softcap: float = 0.0,
    block: int = 512,
) -> jax.Array:
    """Attend within segments, causally, one pair of blocks of queries and keys at a time.

    Pairs above the diagonal are left out; a row no longer than a block is attended the dense way.

    Args:
        segments_BT: sequence number within the row; tokens attend to their own number.
        reach: a token attends to the last `reach` tokens, itself included; None to all.
        softcap: see `cap`.
        block: tokens in a block.
    Returns:
        attended_BTHC in the dtype of the values.
    Source: FlashAttention-2, arXiv:2307.08691, algorithms 1 and 2.
    """
    rows, tokens, heads, channels = q_BTHC.shape
    if block >= tokens:
        mask_BTS = _seen(segments_BT, segments_BT, 0, 0, reach)
        return attend(q_BTHC, k_BTKC, v_BTKC, mask_BTS, softcap)
    q_BTKGC = q_BTHC.reshape(rows, tokens, k_BTKC.shape[2], -1, channels)
    spare = -tokens % block  # filled up with a segment of its own
    arrays = [_fill(x, spare, 0) for x in (q_BTKGC, k_BTKC, v_BTKC)]
    if reach is None:
        reach = jnp.int32(tokens + spare)
    out = _pairs(softcap, block, *arrays, _fill(segments_BT, spare, -1), reach)
    return out[:, :tokens].reshape(q_BTHC.shape)


def _fill(x, spare: int, value):
    return jnp.pad(x, [(0, 0), (0, spare), *[(0, 0)] * (x.ndim - 2)], constant_values=value)


def _seen(query_segments_BT, key_segments_BS, query_start, key_start, reach):
    """Mask_BTS: who may look at whom, for blocks that begin at the given tokens."""
    ahead_T = query_start + jnp.arange(query_segments_BT.shape[1])
    ahead_S = key_start + jnp.arange(key_segments_BS.shape[1])
    apart_TS = ahead_T[:, None] - ahead_S[None, :]
    seen_TS = apart_TS >= 0 if reach is None else (apart_TS >= 0) & (apart_TS < reach)
    return (query_segments_BT[:, :, None] == key_segments_BS[:, None, :]) & seen_TS


def _places(tokens: int, block: int) -> tuple[jax.Array, jax.Array]:
    """Begin of the query and of the key block of each pair, the diagonal last in its row."""
    query, key = np.tril_indices(tokens // block)
    return jnp.asarray(query * block), jnp.asarray(key * block)


def _cut(x, start, block: int):
    return jax.lax.dynamic_slice_in_dim(x, start, block, axis=1)


def _put(x, part, start):
    return jax.lax.dynamic_update_slice_in_dim(x, part.astype(x.dtype), start, axis=1)


def _scores(q_BTKGC, k_BSKC, softcap: float) -> jax.Array:
    """Scores [B, T, K, G, S] in float32."""
    scores = matmul.einsum("BTKGC,BSKC->BTKGS", q_BTKGC, k_BSKC, out="float32")
    return cap(scores * q_BTKGC.shape[-1] ** -0.5, softcap)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _pairs(softcap: float, block: int, q, k, v, segments, reach):
    return _pairs_forward(softcap, block, q, k, v, segments, reach)[0]


def _pairs_forward(softcap, block, q, k, v, segments, reach):
    """Softmax by running maximum and sum; kept in float32 for all queries of the row."""

    def pair(state, places):
        out, top, total = state
        t, s = places
        scores = _scores(_cut(q, t, block), _cut(k, s, block), softcap)
        mask = _seen(_cut(segments, t, block), _cut(segments, s, block), t, s, reach)
        scores = jnp.where(mask[:, :, None, None], scores, _MASKED)
        before = _cut(top, t, block)
        now = jnp.maximum(before, scores.max(-1))
        weights = jnp.exp(scores - now[..., None])
        # Where nothing was seen yet the maximum is _MASKED and this factor wipes what was added.
        fade = jnp.exp(before - now)
        weights_v = weights.astype(v.dtype)
        added = matmul.einsum("BTKGS,BSKC->BTKGC", weights_v, _cut(v, s, block), out="float32")
        out = _put(out, _cut(out, t, block) * fade[..., None] + added, t)
        total = _put(total, _cut(total, t, block) * fade + weights.sum(-1), t)
        return (out, _put(top, now, t), total), None

    zero = jnp.zeros(q.shape, jnp.float32)
    begun = (zero, jnp.full(q.shape[:-1], _MASKED, jnp.float32), zero[..., 0])
    (out, top, total), _ = jax.lax.scan(pair, begun, _places(q.shape[1], block))
    out = checkpoint_name((out / total[..., None]).astype(v.dtype), KEPT)
    return out, (q, k, v, segments, reach, out, checkpoint_name(top + jnp.log(total), KEPT))


def _pairs_backward(softcap, block, kept, d_out):
    q, k, v, segments, reach, out, log_total = kept
    delta = (out.astype(jnp.float32) * d_out.astype(jnp.float32)).sum(-1)

    def pair(gradients, places):
        d_q, d_k, d_v = gradients
        t, s = places
        values, pulled = _cut(v, s, block), _cut(d_out, t, block)
        scores, pull = jax.vjp(
            lambda q, k: _scores(q, k, softcap), _cut(q, t, block), _cut(k, s, block)
        )
        mask = _seen(_cut(segments, t, block), _cut(segments, s, block), t, s, reach)
        scores = jnp.where(mask[:, :, None, None], scores, _MASKED)
        weights = jnp.exp(scores - _cut(log_total, t, block)[..., None])
        weights_v = weights.astype(v.dtype)
        more_v = matmul.einsum("BTKGS,BTKGC->BSKC", weights_v, pulled, out="float32")
        d_weights = matmul.einsum("BTKGC,BSKC->BTKGS", pulled, values, out="float32")
        more_q, more_k = pull(weights * (d_weights - _cut(delta, t, block)[..., None]))
        d_q = _put(d_q, _cut(d_q, t, block) + more_q, t)
        d_k = _put(d_k, _cut(d_k, s, block) + more_k, s)
        return (d_q, d_k, _put(d_v, _cut(d_v, s, block) + more_v, s)), None

    zero = tuple(jnp.zeros(x.shape, jnp.float32) for x in (q, k, v))
    gradients, _ = jax.lax.scan(pair, zero, _places(q.shape[1], block))
    d_q, d_k, d_v = (g.astype(x.dtype) for g, x in zip(gradients, (q, k, v), strict=True))
    return d_q, d_k, d_v, None, None


_pairs.defvjp(_pairs_forward, _pairs_backward)


def splash(
    q_BTHC: jax.Array,
    k_BTKC: jax.Array,
    v_BTKC: jax.Array,
    segments_BT: jax.Array,
    mesh: jax.sharding.Mesh,
    *,
    softcap: float = 0.0,
    block: int = 512,
    interpret: bool = False,
) -> jax.Array:
    """Do what `packed` does, by the splash kernel, rows and heads cut over the mesh.

    Args:
        interpret: run the kernel's steps without a TPU, slowly.
    Raises:
        ValueError: the length of the rows is no multiple of LANES.
    """
    tokens, channels = q_BTHC.shape[1], q_BTHC.shape[3]
    if tokens % LANES:
        raise ValueError(
            f"learn.attention='splash' with rows of {tokens} tokens: set batch.row_tokens to a "
            f"multiple of {LANES}."
        )
    size = max(b for b in range(LANES, min(block, tokens) + 1, LANES) if tokens % b == 0)
    sizes = kernel.BlockSizes(
        block_q=size, block_kv=size, block_kv_compute=size,
        block_q_dkv=size, block_kv_dkv=size, block_kv_dkv_compute=size,
        block_q_dq=size, block_kv_dq=size,
    )  # fmt: skip

    def local(q_BTHC, k_BTKC, v_BTKC, segments_BT):
        every = masks.MultiHeadMask([masks.CausalMask((tokens, tokens))] * q_BTHC.shape[2])
        run = kernel.make_splash_mha(
            every, block_sizes=sizes, head_shards=1, q_seq_shards=1,
            attn_logits_soft_cap=softcap or None, residual_checkpoint_name=KEPT,
            interpret=interpret,
        )  # fmt: skip

        def row(q_THC, k_TKC, v_TKC, segments_T):
            heads = [jnp.moveaxis(x, 0, 1) for x in (q_THC * channels**-0.5, k_TKC, v_TKC)]
            return jnp.moveaxis(run(*heads, kernel.SegmentIds(segments_T, segments_T)), 0, 1)

        return jax.vmap(row)(q_BTHC, k_BTKC, v_BTKC, segments_BT)

    q_spec, k_spec = (
        rules.spec("batch", "tokens", "heads"),
        rules.spec("batch", "tokens", "kv_heads"),
    )
    return jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(q_spec, k_spec, k_spec, rules.spec("batch")),
        out_specs=q_spec,
        check_vma=False,
    )(q_BTHC, k_BTKC, v_BTKC, segments_BT)


def choose(
    kind: Kind, mesh: jax.sharding.Mesh, softcap: float = 0.0, block: int = 512
) -> Callable[..., jax.Array]:
    """Give the function (queries, keys, values, segments, reach) -> attended of a kind."""
    if kind == "blockwise":
        return functools.partial(_blockwise, softcap=softcap, block=block)
    return functools.partial(_splash, mesh=mesh, softcap=softcap, block=block)


def _blockwise(q_BTHC, k_BTKC, v_BTKC, segments_BT, reach, *, softcap, block):
    return packed(q_BTHC, k_BTKC, v_BTKC, segments_BT, reach=reach, softcap=softcap, block=block)


def _splash(q_BTHC, k_BTKC, v_BTKC, segments_BT, reach, *, mesh, softcap, block):
    if reach is not None:
        raise ValueError(
            "learn.attention='splash' with layers of different windows: the kernel needs one mask "
            "for all layers. Use 'blockwise'."
        )
    return splash(q_BTHC, k_BTKC, v_BTKC, segments_BT, mesh, softcap=softcap, block=block)
