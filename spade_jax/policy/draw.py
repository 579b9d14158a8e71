"""Draw one token per row, each row with its own temperature, truncation and random stream.

Comes in: float32 logits and the settings of each row. Goes out: token ids and their
log-probability under the distribution that was drawn from. Nothing is sorted: the worst kept score
of a truncated row is found by bisection over the bits of float32, 32 passes over the vocabulary
whatever its size, where a sort of 49,152 scores takes a hundred times a layer.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

_BLOCK = 256  # places of the vocabulary that are summed together before one is searched


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """How the distribution of each row is shaped before a token is drawn."""

    temperatures_B: jax.Array  # float32; divides the logits, 0 takes the best token
    top_k_B: jax.Array  # int32; 0 keeps all
    top_p_B: jax.Array  # float32; 1 keeps all


def choose(
    scores_BV: jax.Array,
    seeds_B: jax.Array,
    steps_B: jax.Array,
    shape: Shape,
    truncated: bool,
) -> tuple[jax.Array, jax.Array]:
    """Draw a token per row, with randomness from the row's seed and step only.

    Args:
        scores_BV: float32 logits.
        seeds_B: uint32 seed of each sequence.
        steps_B: how many tokens each has sampled.
        shape: a row of temperature 0 takes its best token, the first where several tie. Others draw
            from softmax(scores / temperature), of which the top_k best are kept, then of those the
            fewest best whose probability reaches top_p; tokens that tie with the worst kept one are
            kept.
        truncated: False where no row truncates; the programs are the same otherwise.
    Returns:
        ids_B, and logps_B under the distribution that was drawn from; at temperature 0 under
        softmax(scores).
    """
    greedy_B = shape.temperatures_B == 0
    scores_BV = scores_BV / jnp.where(greedy_B, 1.0, shape.temperatures_B)[:, None]
    best_B1 = jnp.max(scores_BV, axis=1, keepdims=True)
    if truncated:
        worst_B = _worst_kept(scores_BV, best_B1, shape)
        scores_BV = jnp.where(scores_BV >= worst_B[:, None], scores_BV, -jnp.inf)
    weights_BV = jnp.exp(scores_BV - best_B1)
    drawn_B, total_B = _inverse(weights_BV, _uniform(seeds_B, steps_B))
    # A minimum over places is one pass; XLA's argmax on CPU is twenty times slower.
    places_V = jnp.arange(scores_BV.shape[1], dtype=jnp.int32)
    first_B = jnp.min(jnp.where(scores_BV == best_B1, places_V, places_V.size), axis=1)
    # Logits that are not numbers have no best token; an id of the vocabulary is given all the same.
    ids_B = jnp.minimum(jnp.where(greedy_B, first_B, drawn_B), places_V.size - 1)
    scores_B = jnp.take_along_axis(scores_BV, ids_B[:, None], axis=1)[:, 0]
    return ids_B, scores_B - best_B1[:, 0] - jnp.log(total_B)


def _uniform(seeds_B, steps_B):
    def one(seed, step):
        return jax.random.uniform(jax.random.fold_in(jax.random.key(seed), step))

    return jax.vmap(one)(seeds_B, steps_B)


def _inverse(weights_BV, uniform_B):
    """Invert the distribution function in two levels; also give the sum of the weights.

    A uniform below 1 times a total stays below the total in float32, so the first place above it
    exists and has a weight above 0.
    """
    rows, vocabulary = weights_BV.shape
    blocks = -(-vocabulary // _BLOCK)
    padded = jnp.pad(weights_BV, ((0, 0), (0, blocks * _BLOCK - vocabulary)))
    weights_BXY = padded.reshape(rows, blocks, _BLOCK)
    sums_BX = jnp.sum(weights_BXY, axis=2)
    below_BX = jnp.cumsum(sums_BX, axis=1)
    target_B = uniform_B * below_BX[:, -1]
    block_B = jnp.sum(below_BX <= target_B[:, None], axis=1, dtype=jnp.int32)
    chosen_BY = jnp.take_along_axis(weights_BXY, block_B[:, None, None], axis=1)[:, 0]
    start_B = jnp.take_along_axis(below_BX - sums_BX, block_B[:, None], axis=1)[:, 0]
    share_B = (target_B - start_B) / jnp.take_along_axis(sums_BX, block_B[:, None], axis=1)[:, 0]
    inside_BY = jnp.cumsum(chosen_BY, axis=1)
    # Rounding may put the share at 1 or below 0: the last and the first weighted place are meant.
    target_B = jnp.clip(share_B, 0.0, 1.0 - 2.0**-24) * inside_BY[:, -1]
    place_B = jnp.sum(inside_BY <= target_B[:, None], axis=1, dtype=jnp.int32)
    return block_B * _BLOCK + place_B, below_BX[:, -1]


def _worst_kept(scores_BV, best_B1, shape: Shape):
    """Give the lowest score that each row keeps, -inf where it keeps all."""
    vocabulary = scores_BV.shape[1]
    top_k_B = jnp.where(shape.top_k_B > 0, jnp.minimum(shape.top_k_B, vocabulary), vocabulary)
    by_rank_B = _largest_where(
        scores_BV, lambda kept_BV: jnp.sum(kept_BV, axis=1, dtype=jnp.int32) >= top_k_B
    )
    weights_BV = jnp.where(scores_BV >= by_rank_B[:, None], jnp.exp(scores_BV - best_B1), 0.0)
    # The share is of exactly top_k tokens: of those that tie with the worst, the surplus is out.
    surplus_B = jnp.sum(weights_BV > 0, axis=1) - top_k_B
    worst_B = jnp.exp(by_rank_B - best_B1[:, 0])
    total_B = jnp.sum(weights_BV, axis=1) - jnp.maximum(surplus_B, 0) * worst_B
    wanted_B = shape.top_p_B * total_B
    by_share_B = _largest_where(
        scores_BV, lambda kept_BV: jnp.sum(weights_BV * kept_BV, axis=1) >= wanted_B
    )
    narrow_B = shape.top_p_B < 1
    worst_B = jnp.where(narrow_B, jnp.maximum(by_rank_B, by_share_B), by_rank_B)
    return jnp.where(narrow_B | (shape.top_k_B > 0), worst_B, -jnp.inf)


def _largest_where(scores_BV, enough):
    """Give per row the largest float t for which `enough(scores >= t)` holds.

    Args:
        enough: monotone: true for a set of tokens whenever it is for a smaller one; true for all.
    """
    order_BV = _order(scores_BV)
    low_B = jnp.min(order_BV, axis=1)  # enough holds here
    high_B = jnp.max(order_BV, axis=1)

    def halve(_, bounds):
        low_B, high_B = bounds
        # The mean rounded up, without overflow.
        middle_B = (low_B | high_B) - ((low_B ^ high_B) >> 1)
        holds_B = enough(order_BV >= middle_B[:, None])
        return jnp.where(holds_B, middle_B, low_B), jnp.where(holds_B, high_B, middle_B - 1)

    low_B, _ = jax.lax.fori_loop(0, 32, halve, (low_B, high_B))
    return _unorder(low_B)


def _order(scores):
    """Map float32 to int32 in the same order."""
    bits = jax.lax.bitcast_convert_type(scores, jnp.int32)
    return jnp.where(bits < 0, bits ^ jnp.int32(0x7FFFFFFF), bits)


def _unorder(order):
    bits = jnp.where(order < 0, order ^ jnp.int32(0x7FFFFFFF), order)
    return jax.lax.bitcast_convert_type(bits, jnp.float32)
