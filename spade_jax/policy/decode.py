"""The programs behind the sampler: extend sequences, advance them.

Comes in: parameters of `laid_out`, the cache of some rows, tokens. Goes out: the tokens that were
sampled and what belongs into the cache behind them. Neither program changes the cache it reads: new
keys and values collect in a small buffer with one common place per step, so that a write is a slice
and not a scatter, and `cache.write` puts the buffer behind the rows once per call. Layers have
arrays of their own, unrolled where one token a row is computed: a scan would copy each layer's
weights and cache out of a stack at every step. A sequence's last token is not in the cache yet; the
next call puts it there.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp

from spade_jax.policy import attention, draw, heads, laid_out, transformer
from spade_jax.policy import cache as caches

_MASKED = -1e30  # finite: a row without content attends to nothing and must give numbers


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows:
    """Sequences in the making; those with nothing left to sample are padding."""

    tokens_B: jax.Array  # last token of each, not in the cache
    lengths_B: jax.Array  # tokens in the cache = position of the last token
    steps_B: jax.Array  # tokens sampled so far
    limits_B: jax.Array  # most tokens to sample; at most steps_B where nothing is to be sampled
    roles_B: jax.Array
    seeds_B: jax.Array  # uint32
    shape: draw.Shape


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Emitted:
    """What the rows wrote during one call of `advance`; only the first `steps` entries count."""

    ids_TB: jax.Array
    logps_TB: jax.Array
    live_TB: jax.Array  # False where the row was finished and the entry means nothing
    steps: jax.Array


def extend(
    params: dict,
    config: transformer.ModelConfig,
    past: caches.Cache | None,
    tokens_UT: jax.Array,
    starts_U: jax.Array,
    *,
    bits: int = 16,
) -> caches.Cache:
    """Compute what T more tokens of each row put into the cache.

    One layer is a program here, called for each: one layer compiles, and neither weights nor cache
    need a second copy in a stack.

    Args:
        params: never rounded: from `laid_out.lay_out`, or as from `transformer.init`.
        config: the model's.
        past: cache of the rows, None where every row starts at 0.
        tokens_UT: tokens at positions starts_U and after, padded at the end.
        starts_U: tokens that each row has in the cache.
        bits: of the cache that is written, 8 or 16, see `cache.empty`.
    Returns:
        T places; those of padding have no meaning.
    """
    if isinstance(params["layers"], list):
        layers = [(layer, None) for layer in params["layers"]]
    else:
        stacked = transformer.stacked(params, config)
        layers = [(stacked, index) for index in laid_out.indices(config)]
    hidden_UTD, pieces = _embed({"embed": params["embed"]}, config, tokens_UT), []
    for number, (layer, index) in enumerate(layers):
        piece = None if past is None else _layer(past, number)
        hidden_UTD, new = _extend(layer, index, config, piece, hidden_UTD, starts_U, bits=bits)
        pieces.append(new)
    return _stack(pieces)


@functools.partial(jax.jit, static_argnames="config")
def _embed(params, config, tokens_UT):
    return transformer.embed(params, config, tokens_UT)


@functools.partial(jax.jit, static_argnames=("config", "bits"))
def _extend(layer, index, config, piece: _Piece | None, hidden_UTD, starts_U, *, bits):
    """Put T tokens of each row through one layer, the one at `index` where a stack is given.

    Returns:
        hidden states, and what the tokens add to the layer's cache.
    """
    layer = layer if index is None else laid_out.pick(layer, index)
    rows, width, _ = hidden_UTD.shape
    positions_UT = starts_U[:, None] + jnp.arange(width)
    places = [positions_UT]
    lasts = [positions_UT]  # the last place that each query may look at
    if piece is not None:
        before = piece.keys_BKCW.shape[-1]
        places.insert(0, jnp.broadcast_to(jnp.arange(before), (rows, before)))
        lasts.insert(0, jnp.broadcast_to(starts_U[:, None] - 1, (rows, width)))
    with transformer.precision(config):
        module = transformer.block(config, layer)
        q_UTHC, k_UTKC, v_UTKC = module.project(hidden_UTD, positions_UT)
        new = _pack(k_UTKC, v_UTKC, bits)
        pieces = [new] if piece is None else [piece, new]
        views = _views(module, positions_UT, places, lasts)
        attended_UTHC = _attend(q_UTHC, pieces, views, config.attention_softcap)
        return module.finish(hidden_UTD, attended_UTHC), new


@functools.partial(jax.jit, static_argnames=("config", "steps", "truncated"))
def advance(
    ready: dict,
    config: transformer.ModelConfig,
    past: caches.Cache,
    rows: Rows,
    end_ids_E: jax.Array,
    stop_at: jax.Array,
    *,
    steps: int,
    truncated: bool,
) -> tuple[caches.Cache, Emitted]:
    """Sample up to `steps` tokens in every row.

    Args:
        ready: from `laid_out.lay_out`.
        config: the model's.
        past: cache of the rows; it is not changed.
        rows: the sequences.
        end_ids_E: a row that samples one of these is finished.
        stop_at: return early once no more than this many rows are active.
        steps: most tokens per row in this call.
        truncated: False where no row has top_k or top_p, see `draw.choose`.
    Returns:
        places for the rows' caches, one for each entry that was live, and the entries.
    """
    begun_B = rows.lengths_B

    def running(carry):
        rows, _, emitted = carry
        return (emitted.steps < steps) & (jnp.sum(rows.steps_B < rows.limits_B) > stop_at)

    def step(carry):
        rows, buffer, emitted = carry
        at = emitted.steps
        hidden_BD, buffer = _decode(ready, config, past, begun_B, buffer, rows, at)
        scores_BV = heads.logits(ready, config, hidden_BD, rows.roles_B)
        ids_B, logps_B = draw.choose(scores_BV, rows.seeds_B, rows.steps_B, rows.shape, truncated)
        active_B = rows.steps_B < rows.limits_B
        emitted = Emitted(
            ids_TB=emitted.ids_TB.at[at].set(ids_B),
            logps_TB=emitted.logps_TB.at[at].set(logps_B),
            live_TB=emitted.live_TB.at[at].set(active_B),
            steps=at + 1,
        )
        rows = _after(rows, ids_B, active_B, end_ids_E)
        return rows, buffer, emitted

    count = rows.tokens_B.shape[0]
    nothing = Emitted(
        ids_TB=jnp.zeros((steps, count), jnp.int32),
        logps_TB=jnp.zeros((steps, count), jnp.float32),
        live_TB=jnp.zeros((steps, count), bool),
        steps=jnp.int32(0),
    )
    bits = 8 if past.key_scales_L else 16
    buffer = caches.empty(config, count, steps, bits)
    _, buffer, emitted = jax.lax.while_loop(running, step, (rows, buffer, nothing))
    return buffer, emitted


def _after(rows: Rows, ids_B, active_B, end_ids_E) -> Rows:
    """Move the active rows on by one token; a row that is over has its limit reached."""
    ended_B = jnp.any(ids_B[:, None] == end_ids_E, axis=1)
    steps_B = rows.steps_B + active_B
    return dataclasses.replace(
        rows,
        tokens_B=ids_B,
        lengths_B=rows.lengths_B + active_B,
        steps_B=steps_B,
        limits_B=jnp.where(ended_B, jnp.minimum(rows.limits_B, steps_B), rows.limits_B),
    )


def _decode(ready, config, past, begun_B, buffer, rows: Rows, at):
    """Put each row's last token through the layers: hidden_BD and the buffer with it."""
    positions_B1, begun_B1 = rows.lengths_B[:, None], begun_B[:, None]
    places = [jnp.arange(past.places)[None], begun_B1 + jnp.arange(buffer.places)]
    lasts = [begun_B1 - 1, begun_B1 + at]
    pieces = []
    with transformer.precision(config):
        hidden_B1D = transformer.embed(ready, config, rows.tokens_B[:, None])
        for index, layer in enumerate(ready["layers"]):
            module = transformer.block(config, laid_out.exact(layer))
            q_B1HC, k_B1KC, v_B1KC = module.project(hidden_B1D, positions_B1)
            new = _pack(k_B1KC, v_B1KC, 8 if past.key_scales_L else 16)
            pieces.append(_put(_layer(buffer, index), new, at))
            views = _views(module, positions_B1, places, lasts)
            attended_B1HC = _attend(
                q_B1HC, [_layer(past, index), pieces[-1]], views, config.attention_softcap
            )
            hidden_B1D = module.finish(hidden_B1D, attended_B1HC)
    hidden_BD = transformer.final_norm(ready, config, hidden_B1D)[:, 0]
    return hidden_BD, _stack(pieces)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class _Piece:
    """Places of one layer that are attended to together."""

    keys_BKCW: jax.Array
    values_BKWC: jax.Array
    key_scales_BKW: jax.Array | None = None
    value_scales_BKW: jax.Array | None = None


def _views(module, positions_BT, places, lasts) -> list[jax.Array]:
    """Say for each piece which of its places each query may look at, its window included."""
    return [
        module.sees(
            places_BW[:, None] <= last_BT[:, :, None],
            positions_BT[:, :, None] - places_BW[:, None],
        )
        for places_BW, last_BT in zip(places, lasts, strict=True)
    ]


def _attend(q_BTHC, pieces: list[_Piece], masks_BTW: list, softcap: float):
    """Do what `attention.attend` does, over several pieces in the cache's layout."""
    rows, queries, _, channels = q_BTHC.shape
    kv_heads = pieces[0].keys_BKCW.shape[1]
    # Queries of a key head and of several positions are rows of one product.
    q_BKTGC = q_BTHC.reshape(rows, queries, kv_heads, -1, channels).transpose(0, 2, 1, 3, 4)
    q_BKXC = q_BKTGC.reshape(rows, kv_heads, -1, channels)
    group = q_BKXC.shape[2] // queries
    parts = []
    for piece, mask_BTW in zip(pieces, masks_BTW, strict=True):
        scores_BKXW = jnp.einsum(
            "BKXC,BKCW->BKXW",
            q_BKXC,
            piece.keys_BKCW.astype(q_BKXC.dtype),
            preferred_element_type=jnp.float32,
        )
        if piece.key_scales_BKW is not None:
            scores_BKXW = scores_BKXW * piece.key_scales_BKW[:, :, None]
        scores_BKXW = attention.cap(scores_BKXW * channels**-0.5, softcap)
        mask_BXW = jnp.repeat(mask_BTW, group, axis=1)
        parts.append(jnp.where(mask_BXW[:, None], scores_BKXW, _MASKED))
    best_BKX1 = functools.reduce(
        jnp.maximum, [jnp.max(part, axis=-1, keepdims=True) for part in parts]
    )
    weights = [jnp.exp(part - best_BKX1) for part in parts]
    total_BKX1 = sum(jnp.sum(part, axis=-1, keepdims=True) for part in weights)
    attended_BKXC = 0.0
    for piece, weights_BKXW in zip(pieces, weights, strict=True):
        weights_BKXW = weights_BKXW / total_BKX1
        if piece.value_scales_BKW is not None:
            weights_BKXW = weights_BKXW * piece.value_scales_BKW[:, :, None]
        attended_BKXC += jnp.einsum(
            "BKXW,BKWC->BKXC",
            weights_BKXW.astype(q_BTHC.dtype),
            piece.values_BKWC.astype(q_BTHC.dtype),
            preferred_element_type=jnp.float32,
        )
    attended_BKTGC = attended_BKXC.astype(q_BTHC.dtype).reshape(q_BKTGC.shape)
    return attended_BKTGC.transpose(0, 2, 1, 3, 4).reshape(q_BTHC.shape)


def _pack(k_BTKC, v_BTKC, bits: int) -> _Piece:
    """Bring new keys and values into the form of the cache."""
    keys_BKCT, values_BKTC = k_BTKC.transpose(0, 2, 3, 1), v_BTKC.transpose(0, 2, 1, 3)
    if bits == 16:
        return _Piece(keys_BKCW=keys_BKCT, values_BKWC=values_BKTC)
    keys_BKCT, key_scales_BKT = caches.quantise(keys_BKCT, 2)
    values_BKTC, value_scales_BKT = caches.quantise(values_BKTC, 3)
    return _Piece(
        keys_BKCW=keys_BKCT,
        values_BKWC=values_BKTC,
        key_scales_BKW=key_scales_BKT,
        value_scales_BKW=value_scales_BKT,
    )


def _put(buffer: _Piece, new: _Piece, at) -> _Piece:
    """Write one place of the buffer."""
    write = jax.lax.dynamic_update_slice_in_dim
    scales = {}
    if buffer.key_scales_BKW is not None:
        scales = {
            "key_scales_BKW": write(buffer.key_scales_BKW, new.key_scales_BKW, at, 2),
            "value_scales_BKW": write(buffer.value_scales_BKW, new.value_scales_BKW, at, 2),
        }
    return _Piece(
        keys_BKCW=write(buffer.keys_BKCW, new.keys_BKCW, at, 3),
        values_BKWC=write(buffer.values_BKWC, new.values_BKWC, at, 2),
        **scales,
    )


def _layer(cache: caches.Cache, index: int) -> _Piece:
    scales = {}
    if cache.key_scales_L:
        scales = {
            "key_scales_BKW": cache.key_scales_L[index],
            "value_scales_BKW": cache.value_scales_L[index],
        }
    return _Piece(keys_BKCW=cache.keys_L[index], values_BKWC=cache.values_L[index], **scales)


def _stack(pieces: list[_Piece]) -> caches.Cache:
    whole = [] if pieces[0].key_scales_BKW is None else pieces
    return caches.Cache(
        keys_L=tuple(piece.keys_BKCW for piece in pieces),
        values_L=tuple(piece.values_BKWC for piece in pieces),
        key_scales_L=tuple(piece.key_scales_BKW for piece in whole),
        value_scales_L=tuple(piece.value_scales_BKW for piece in whole),
    )
