"""Log-probabilities of given targets, in chunks, with a gradient of their own.

Comes in: a function from hidden states to logits. Goes out: log-probability and entropy per token.
Neither pass holds the logits of more than one chunk: the backward pass computes them again and
turns them into the gradient of the logits in place, where automatic differentiation keeps a copy
for each operation between logits and loss.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

# (head parameters, hidden [..., D], roles [...]) -> float32 logits [..., V]
Scores = Callable[[Any, jax.Array, jax.Array], jax.Array]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def chunked(
    scores: Scores,
    width: int,
    head: Any,
    hidden_BTD: jax.Array,
    targets_BT: jax.Array,
    roles_BT: jax.Array,
    temperature_BT: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Give logps_BT and entropy_BT of softmax(scores / temperature), float32, in nats.

    Only `head` and `hidden_BTD` have a gradient.

    Args:
        scores: must hold no arrays of its own.
        width: tokens of each row in a chunk. Chunks run along T, so a sharded B stays where it is.
    """
    return _forward(scores, width, head, hidden_BTD, targets_BT, roles_BT, temperature_BT)[0]


def _forward(scores, width, head, hidden_BTD, targets_BT, roles_BT, temperature_BT):
    def chunk(_, given):
        hidden_BTD, targets_BT, roles_BT, temperature_BT = given
        scores_BTV = scores(head, hidden_BTD, roles_BT) / temperature_BT[..., None]
        total_BT = jax.nn.logsumexp(scores_BTV, axis=-1)
        chosen_BT = jnp.take_along_axis(scores_BTV, targets_BT[..., None], axis=-1)[..., 0]
        mean_BT = (jnp.exp(scores_BTV - total_BT[..., None]) * scores_BTV).sum(-1)
        return None, (chosen_BT - total_BT, total_BT - mean_BT, total_BT)

    given = (hidden_BTD, targets_BT, roles_BT, temperature_BT)
    _, outputs = jax.lax.scan(chunk, None, _split(given, width))
    logps_BT, entropy_BT, total_BT = _join(outputs, targets_BT.shape[1])
    return (logps_BT, entropy_BT), (head, *given, total_BT, entropy_BT)


def _backward(scores, width, kept, cotangents):
    """With p = softmax(s / temperature): d logp = onehot - p, d entropy = -p (log p + entropy)."""
    head, hidden_BTD, targets_BT, roles_BT, temperature_BT, total_BT, entropy_BT = kept

    def chunk(gradient, given):
        hidden_BTD, targets_BT, roles_BT, temperature_BT, total_BT, entropy_BT = given[:6]
        logp_BT, spread_BT = given[6:]  # cotangents of log-probability and entropy
        scores_BTV, pull = jax.vjp(lambda h, x: scores(h, x, roles_BT), head, hidden_BTD)
        logps_BTV = scores_BTV / temperature_BT[..., None] - total_BT[..., None]
        pull_BTV = logp_BT[..., None] + spread_BT[..., None] * (logps_BTV + entropy_BT[..., None])
        hot_BTV = targets_BT[..., None] == jnp.arange(scores_BTV.shape[-1])
        change_BTV = jnp.where(hot_BTV, logp_BT[..., None], 0.0) - jnp.exp(logps_BTV) * pull_BTV
        d_head, d_hidden_BTD = pull(change_BTV / temperature_BT[..., None])
        gradient = jax.tree.map(lambda g, d: g + d.astype(jnp.float32), gradient, d_head)
        return gradient, d_hidden_BTD

    zero = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), head)
    given = _split((hidden_BTD, targets_BT, roles_BT, temperature_BT, total_BT, entropy_BT), width)
    given = (*given, *_split(cotangents, width, "constant"))  # what fills a chunk pulls at nothing
    gradient, d_hidden = jax.lax.scan(chunk, zero, given)
    gradient = jax.tree.map(lambda g, x: g.astype(x.dtype), gradient, head)
    return gradient, _join(d_hidden, targets_BT.shape[1]), None, None, None


chunked.defvjp(_forward, _backward)


def _split(arrays: Any, width: int, fill: str = "edge") -> Any:
    """[B, T, ...] -> [chunks, B, width, ...], filled up with the last token or with 0."""

    def split(x):
        rows, tokens = x.shape[:2]
        spare = [(0, 0)] * x.ndim
        spare[1] = (0, -tokens % width)
        padded = jnp.pad(x, spare, mode=fill)
        return jnp.moveaxis(padded.reshape(rows, -1, width, *x.shape[2:]), 1, 0)

    return jax.tree.map(split, arrays)


def _join(chunks: Any, tokens: int) -> Any:
    """Undo `_split`."""

    def join(x):
        x = jnp.moveaxis(x, 0, 1)
        return x.reshape(x.shape[0], -1, *x.shape[3:])[:, :tokens]

    return jax.tree.map(join, chunks)
