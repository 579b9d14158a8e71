"""The programs behind `sampler`: slots with a key-value cache, filled, advanced and compacted.

Comes in: parameters and slots. Goes out: slots and the tokens they emitted. All slots write the
cache at one common place that moves around a ring of W places, so a write is a slice and not a
scatter, and a slot can be filled at any time: its prompt goes into the places just behind the
common one. Attention does not care about the order of places, because keys carry their rotary
position. A slot's last token is not in the cache yet; the next step puts it there.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp

from spade_jax.policy import heads, transformer

_MASKED = -1e30  # finite: an empty slot attends to nothing and must give numbers


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Slots:
    """Sequences in the making."""

    keys_LBKCW: jax.Array  # places last: products over few rows are faster this way on CPU
    values_LBKWC: jax.Array
    cursor: jax.Array  # int32, place of the next write, 0 .. W-1
    tokens_B: jax.Array  # last token of each slot, not in the cache
    lengths_B: jax.Array  # tokens in the cache = position of the last token
    steps_B: jax.Array  # tokens sampled so far
    limits_B: jax.Array  # most tokens to sample
    roles_B: jax.Array
    seeds_B: jax.Array  # uint32
    active_B: jax.Array  # False where a slot is finished or free


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Arrivals:
    """Sequences to be put into slots; R of them over U distinct prompts."""

    slots_R: jax.Array  # slot of each; B, out of range, where a row is padding
    prompts_R: jax.Array  # which of the U prefilled prompts it continues
    tokens_R: jax.Array  # last token of the prompt, which the prefill leaves out
    lengths_R: jax.Array  # tokens of the prompt before that
    limits_R: jax.Array
    roles_R: jax.Array
    seeds_R: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Emitted:
    """What the slots wrote during one call of `advance`; only the first `steps` rows count."""

    ids_TB: jax.Array
    logps_TB: jax.Array
    live_TB: jax.Array  # False where the slot was finished and the entry means nothing
    steps: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Truncation:
    """How the distribution is shaped before a token is drawn."""

    temperature: jax.Array  # divides the logits, above 0
    top_k: jax.Array  # 0 keeps all
    top_p: jax.Array  # 1 keeps all


@functools.partial(jax.jit, static_argnames=("config", "slots", "places"))
def empty(config: transformer.ModelConfig, slots: int, places: int) -> Slots:
    """Make free slots."""
    shape = (config.layers, slots, config.kv_heads)
    dtype = jnp.dtype(config.compute_dtype)
    whole_B = jnp.zeros(slots, jnp.int32)
    return Slots(
        keys_LBKCW=jnp.zeros((*shape, config.head_dim, places), dtype),
        values_LBKWC=jnp.zeros((*shape, places, config.head_dim), dtype),
        cursor=jnp.int32(0),
        tokens_B=whole_B,
        lengths_B=whole_B,
        steps_B=whole_B,
        limits_B=whole_B,
        roles_B=whole_B,
        seeds_B=whole_B.astype(jnp.uint32),
        active_B=whole_B.astype(bool),
    )


@functools.partial(jax.jit, static_argnames="config")
def prefill(
    params: dict, config: transformer.ModelConfig, tokens_UT: jax.Array, lengths_U: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute keys_LUKCT and values_LUKTC of prompts that are padded on the left."""
    width = tokens_UT.shape[1]
    positions_UT = jnp.arange(width) - (width - lengths_U)[:, None]
    segments_UT = (positions_UT >= 0).astype(jnp.int32)
    positions_UT = jnp.maximum(positions_UT, 0)
    _, (keys_LUTKC, values_LUTKC) = transformer.scan_layers(
        params, config, tokens_UT, positions_UT, segments_UT, keep_cache=True
    )
    return keys_LUTKC.transpose(0, 1, 3, 4, 2), values_LUTKC.transpose(0, 1, 3, 2, 4)


@functools.partial(jax.jit, donate_argnames="slots")
def admit(
    slots: Slots, keys_LUKCT: jax.Array, values_LUKTC: jax.Array, arrivals: Arrivals
) -> Slots:
    """Put arrivals into their slots, each with a copy of its prompt's cache."""
    places = slots.keys_LBKCW.shape[-1]
    spare = (places - keys_LUKCT.shape[-1], 0)
    keys_LUKCW = jnp.pad(keys_LUKCT, [(0, 0)] * 4 + [spare])
    values_LUKWC = jnp.pad(values_LUKTC, [(0, 0)] * 3 + [spare, (0, 0)])
    keys_LUKCW = jnp.roll(keys_LUKCW, slots.cursor, axis=4)
    values_LUKWC = jnp.roll(values_LUKWC, slots.cursor, axis=3)

    def put(old, new, axis=0):
        index = (slice(None),) * axis + (arrivals.slots_R,)
        return old.at[index].set(new, mode="drop")

    chosen_R = arrivals.prompts_R
    return Slots(
        keys_LBKCW=put(slots.keys_LBKCW, keys_LUKCW[:, chosen_R], 1),
        values_LBKWC=put(slots.values_LBKWC, values_LUKWC[:, chosen_R], 1),
        cursor=slots.cursor,
        tokens_B=put(slots.tokens_B, arrivals.tokens_R),
        lengths_B=put(slots.lengths_B, arrivals.lengths_R),
        steps_B=put(slots.steps_B, jnp.zeros_like(arrivals.limits_R)),
        limits_B=put(slots.limits_B, arrivals.limits_R),
        roles_B=put(slots.roles_B, arrivals.roles_R),
        seeds_B=put(slots.seeds_B, arrivals.seeds_R),
        active_B=put(slots.active_B, True),
    )


@jax.jit
def compact(slots: Slots, kept_R: jax.Array) -> Slots:
    """Keep the slots kept_R, in that order, free where kept_R is out of range."""
    inside_R = kept_R < slots.tokens_B.shape[0]
    kept_R = jnp.where(inside_R, kept_R, 0)
    per_slot = {
        field.name: getattr(slots, field.name)[kept_R]
        for field in dataclasses.fields(slots)
        if field.name.endswith("_B")
    }
    per_slot["active_B"] &= inside_R
    return Slots(
        keys_LBKCW=slots.keys_LBKCW[:, kept_R],
        values_LBKWC=slots.values_LBKWC[:, kept_R],
        cursor=slots.cursor,
        **per_slot,
    )


@functools.partial(jax.jit, static_argnames=("config", "steps", "kind"), donate_argnames="slots")
def advance(
    params: dict,
    config: transformer.ModelConfig,
    slots: Slots,
    shape: Truncation,
    end_ids_E: jax.Array,
    stop_at: jax.Array,
    *,
    steps: int,
    kind: str,
) -> tuple[Slots, Emitted]:
    """Sample up to `steps` tokens in every active slot.

    Args:
        params: as from `transformer.init`.
        config: the model's.
        slots: the sequences.
        shape: temperature and truncation.
        end_ids_E: a slot that samples one of these is finished.
        stop_at: return early once no more than this many slots are active.
        steps: most tokens per slot in this call.
        kind: "full", "truncated" or "greedy", see `choose`.
    """
    rows = slots.tokens_B.shape[0]

    def running(carry):
        slots, emitted = carry
        return (emitted.steps < steps) & (jnp.sum(slots.active_B) > stop_at)

    def step(carry):
        slots, emitted = carry
        hidden_BD, slots = _decode(params, config, slots)
        scores_BV = heads.logits(params, config, hidden_BD, slots.roles_B)
        ids_B, logps_B = choose(scores_BV, slots.seeds_B, slots.steps_B, shape, kind)
        row = emitted.steps
        emitted = Emitted(
            ids_TB=emitted.ids_TB.at[row].set(ids_B),
            logps_TB=emitted.logps_TB.at[row].set(logps_B),
            live_TB=emitted.live_TB.at[row].set(slots.active_B),
            steps=row + 1,
        )
        ended_B = jnp.any(ids_B[:, None] == end_ids_E, axis=1)
        steps_B = slots.steps_B + slots.active_B
        active_B = slots.active_B & ~ended_B & (steps_B < slots.limits_B)
        slots = dataclasses.replace(slots, tokens_B=ids_B, steps_B=steps_B, active_B=active_B)
        return slots, emitted

    nothing = Emitted(
        ids_TB=jnp.zeros((steps, rows), jnp.int32),
        logps_TB=jnp.zeros((steps, rows), jnp.float32),
        live_TB=jnp.zeros((steps, rows), bool),
        steps=jnp.int32(0),
    )
    return jax.lax.while_loop(running, step, (slots, nothing))


def choose(
    scores_BV: jax.Array, seeds_B: jax.Array, steps_B: jax.Array, shape: Truncation, kind: str
) -> tuple[jax.Array, jax.Array]:
    """Draw a token per row, with randomness from the row's seed and step only.

    Args:
        scores_BV: float32 logits.
        seeds_B: seed of each sequence.
        steps_B: how many tokens each has sampled.
        shape: temperature and truncation.
        kind: "full" draws from softmax(scores / temperature). "truncated" first keeps the top_k
            best, then of those the fewest best whose probability reaches top_p; tokens that tie
            with the worst kept one are kept. "greedy" takes the best token.
    Returns:
        ids_B, and logps_B under the distribution that was drawn from; for "greedy" under
        softmax(scores).
    """
    if kind == "greedy":
        logps_BV = jax.nn.log_softmax(scores_BV)
        ids_B = jnp.argmax(scores_BV, axis=1).astype(jnp.int32)
        return ids_B, jnp.take_along_axis(logps_BV, ids_B[:, None], axis=1)[:, 0]
    scores_BV = scores_BV / shape.temperature
    if kind == "truncated":
        scores_BV = _truncate(scores_BV, shape)
    logps_BV = jax.nn.log_softmax(scores_BV)
    keys_B = jax.vmap(lambda seed, step: jax.random.fold_in(jax.random.key(seed), step))(
        seeds_B, steps_B
    )
    uniform_B = jax.vmap(jax.random.uniform)(keys_B)
    # Inverse of the distribution function. A uniform below 1 times the total stays below the
    # total in float32, so the first place above it exists and has a probability above 0.
    below_BV = jnp.cumsum(jnp.exp(logps_BV), axis=1)
    target_B1 = uniform_B[:, None] * below_BV[:, -1:]
    ids_B = jnp.sum(below_BV <= target_B1, axis=1, dtype=jnp.int32)
    return ids_B, jnp.take_along_axis(logps_BV, ids_B[:, None], axis=1)[:, 0]


def _decode(params, config, slots: Slots) -> tuple[jax.Array, Slots]:
    """Put each slot's last token through the layers: hidden_BD and slots with a longer cache."""
    places, cursor = slots.keys_LBKCW.shape[-1], slots.cursor
    age_W = (cursor - jnp.arange(places)) % places
    mask_BW = age_W <= slots.lengths_B[:, None]

    def layer(carry, inputs):
        hidden_B1D, keys_LBKCW, values_LBKWC = carry
        layer_params, index = inputs
        module = transformer.block(config, layer_params)
        q_B1HC, k_B1KC, v_B1KC = module.project(hidden_B1D, slots.lengths_B[:, None])
        k_1BKC1, v_1BK1C = k_B1KC.transpose(0, 2, 3, 1)[None], v_B1KC.transpose(0, 2, 1, 3)[None]
        write = jax.lax.dynamic_update_slice
        keys_LBKCW = write(keys_LBKCW, k_1BKC1, (index, 0, 0, 0, cursor))
        values_LBKWC = write(values_LBKWC, v_1BK1C, (index, 0, 0, cursor, 0))
        seen_BW, softcap = module.sees(mask_BW, age_W), config.attention_softcap
        attended_B1HC = _attend(q_B1HC, keys_LBKCW[index], values_LBKWC[index], seen_BW, softcap)
        return (module.finish(hidden_B1D, attended_B1HC), keys_LBKCW, values_LBKWC), None

    with transformer.precision(config):
        hidden_B1D = transformer.embed(params, config, slots.tokens_B[:, None])
        carry = (hidden_B1D, slots.keys_LBKCW, slots.values_LBKWC)
        inputs = (transformer.stacked(params, config), jnp.arange(config.layers))
        (hidden_B1D, keys_LBKCW, values_LBKWC), _ = jax.lax.scan(layer, carry, inputs)
    hidden_BD = transformer.final_norm(params, config, hidden_B1D)[:, 0]
    slots = dataclasses.replace(
        slots,
        keys_LBKCW=keys_LBKCW,
        values_LBKWC=values_LBKWC,
        cursor=(cursor + 1) % places,
        lengths_B=slots.lengths_B + 1,
    )
    return hidden_BD, slots


def _attend(q_B1HC, keys_BKCW, values_BKWC, mask_BW, softcap):
    """Do what `transformer.attend` does, for one query a row and the cache's layout."""
    rows, _, _, channels = q_B1HC.shape
    q_BKGC = q_B1HC.reshape(rows, keys_BKCW.shape[1], -1, channels)
    scores_BKGW = jnp.einsum(
        "BKGC,BKCW->BKGW", q_BKGC, keys_BKCW, preferred_element_type=jnp.float32
    )
    scores_BKGW = transformer.cap(scores_BKGW * channels**-0.5, softcap)
    scores_BKGW = jnp.where(mask_BW[:, None, None], scores_BKGW, _MASKED)
    weights_BKGW = jax.nn.softmax(scores_BKGW, axis=-1).astype(values_BKWC.dtype)
    return jnp.einsum("BKGW,BKWC->BKGC", weights_BKGW, values_BKWC).reshape(q_B1HC.shape)


def _truncate(scores_BV: jax.Array, shape: Truncation) -> jax.Array:
    ranked_BV = jnp.sort(scores_BV, axis=1, descending=True)
    ranks_V = jnp.arange(scores_BV.shape[1])
    count = jnp.where(shape.top_k > 0, shape.top_k, ranks_V.size)
    shares_BV = jax.nn.softmax(jnp.where(ranks_V < count, ranked_BV, -jnp.inf))
    before_BV = jnp.cumsum(shares_BV, axis=1) - shares_BV
    kept_BV = (ranks_V < count) & ((before_BV < shape.top_p) | (ranks_V == 0))
    worst_B1 = jnp.min(jnp.where(kept_BV, ranked_BV, jnp.inf), axis=1, keepdims=True)
    return jnp.where(scores_BV >= worst_B1, scores_BV, -jnp.inf)
