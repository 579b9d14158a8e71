"""From hidden states to log-probabilities, one head per role over a shared trunk.

Comes in: hidden states of `transformer.forward` and the role of each row or token. Goes out:
logits, or the log-probability of given targets without ever holding the logits of a whole batch.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from spade_jax import records
from spade_jax.policy import attention, layout, logps, matmul, transformer


def logits(
    params: dict, config: transformer.ModelConfig, hidden: jax.Array, roles: jax.Array
) -> jax.Array:
    """Project hidden states onto the vocabulary with the head of each role.

    Args:
        params: as from `transformer.init`.
        config: the model's.
        hidden: [..., D], after the final norm.
        roles: role ids (records.DESIGNER, records.AGENT), shape [...] or any prefix of it:
            one role per row, or one per token.
    Returns:
        float32 logits [..., V].
    """
    with transformer.precision(config):
        if config.role_head == "separate":
            scores = _separate(params["head"], hidden, roles)
        else:
            scores = _shared(params, config, hidden)
        if config.role_head == "lowrank":
            scores = scores + _lowrank(params["head"], hidden, roles)
    return attention.cap(scores, config.logit_softcap)


def token_logps(
    params: dict,
    config: transformer.ModelConfig,
    hidden_BTD: jax.Array,
    targets_BT: jax.Array,
    roles_BT: jax.Array,
    temperature: float | jax.Array = 1.0,
    chunk_tokens: int = 4096,
    mesh: jax.sharding.Mesh | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Give the log-probability of each target and the entropy of its distribution.

    Args:
        params: as from `transformer.init`.
        config: the model's.
        hidden_BTD: hidden states; `hidden[b, t]` predicts `targets[b, t]`, so the caller shifts.
        targets_BT: token ids.
        roles_BT: role id of each token, or of each row as [B] or [B, 1].
        temperature: divides the logits; a number, or an array [B, 1] or [B, T]; above 0.
        chunk_tokens: logits of about this many tokens exist at a time, also in the backward
            pass; with a mesh on each part of the batch. Chunks run along T.
        mesh: that rows and parameters are cut over; None leaves the layout to the partitioner.
    Returns:
        logps_BT and entropy_BT, float32, in nats, both of softmax(logits / temperature).
    """
    rows, tokens = targets_BT.shape
    roles_BT = roles_BT[:, None] if roles_BT.ndim == 1 else roles_BT
    roles_BT = jnp.broadcast_to(roles_BT, (rows, tokens))
    temperature_BT = jnp.broadcast_to(jnp.asarray(temperature, jnp.float32), (rows, tokens))
    names = ("head",) if not config.tied_embeddings else ("embed", "head")
    used = {name: params[name] for name in names if name in params}
    part = functools.partial(_chunked, config, chunk_tokens)
    arrays = (hidden_BTD, targets_BT, roles_BT, temperature_BT)
    if mesh is None:
        return part(used, *arrays)
    return layout.on_parts(part, used, transformer.AXES, config.compute_dtype, arrays, mesh)


def _chunked(config, chunk_tokens, params, hidden_BTD, targets_BT, roles_BT, temperature_BT):
    rows, tokens = targets_BT.shape
    width = min(tokens, max(1, chunk_tokens // rows))
    scores = functools.partial(_scores, config)
    return logps.chunked(scores, width, params, hidden_BTD, targets_BT, roles_BT, temperature_BT)


def _scores(config, params, hidden, roles):
    return logits(params, config, hidden, roles)


def _shared(params: dict, config: transformer.ModelConfig, hidden: jax.Array) -> jax.Array:
    if config.tied_embeddings:
        matrix, axes = params["embed"], "...D,VD->...V"
    else:
        matrix, axes = params["head"]["output_DV"], "...D,DV->...V"
    return matmul.einsum(axes, hidden, matrix, out="float32")


def _separate(head: dict, hidden: jax.Array, roles: jax.Array) -> jax.Array:
    """Logits of each role's own projection, as one product over roles and width: twice the work of
    one head, but no gathered matrices, and zeros keep each role's gradient out of the other."""
    per_role = hidden[..., None, :] * _one_hot(hidden, roles)[..., None]
    return matmul.einsum("...AD,ADV->...V", per_role, head["roles_ADV"], out="float32")


def _lowrank(head: dict, hidden: jax.Array, roles: jax.Array) -> jax.Array:
    """Change of the logits per role. Multiplying by a one-hot role, and not gathering matrices,
    keeps the other role's gradient exactly zero and the memory independent of the row count."""
    low = matmul.einsum("...D,ADR->...AR", hidden, head["lowrank_in"])
    low = low * _one_hot(hidden, roles)[..., None]
    return matmul.einsum("...AR,ARV->...V", low, head["lowrank_out"], out="float32")


def _one_hot(hidden: jax.Array, roles: jax.Array) -> jax.Array:
    """Give [..., A] in the dtype of the hidden states, for roles of a prefix of their shape."""
    chosen = jax.nn.one_hot(roles, len(records.ROLES), dtype=hidden.dtype)
    return chosen.reshape(*roles.shape, *[1] * (hidden.ndim - 1 - roles.ndim), -1)
