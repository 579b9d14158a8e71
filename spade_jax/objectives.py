"""Objectives: token losses of the policy gradient, by name, over packed rows.

What comes in are log-probabilities and advantages per token of rows that hold several sequences;
`sequences_BT` says to which of the Q sequences a token belongs. Every aggregation is a weight per
token, so that losses of microbatches add up to the loss of the batch.
Sources: PPO (arXiv:1707.06347), dual clip (arXiv:1912.09729), GRPO (arXiv:2402.03300), DAPO
(arXiv:2503.14476), Dr. GRPO (arXiv:2503.20783), CISPO (arXiv:2506.13585), GSPO (arXiv:2507.18071),
truncated importance weights (https://fengyao.notion.site/off-policy-rl).
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

AGGREGATIONS = ("sequence_mean", "token_mean", "fixed_length", "sequence_sum")
LARGEST_KL = 10.0  # of one token; beyond it the k3 estimate no longer pulls


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """The loss of one token and how tokens add up."""

    aggregation: str = "sequence_mean"  # one of AGGREGATIONS
    fixed_tokens: int | None = None  # the divisor of "fixed_length", and of nothing else
    loss: str = "clip"  # "clip" or "cispo"
    ratio: str = "token"  # "token", or "sequence": one ratio for all tokens of a sequence (GSPO)
    clip_low: float = 0.2  # ratios are clipped to [1 - low, 1 + high]
    clip_high: float = 0.28
    dual_clip: float | None = None  # > 1: a negative advantage costs at most this times itself
    cispo_cap: float | None = None  # the largest ratio itself, not an offset from 1
    old: str = "trainer"  # whose log-probabilities ratios start from: "trainer" or "sampler"
    importance: str = "token"  # weight of a token, or of all tokens of a "sequence" alike
    importance_cap: float | None = 2.0  # of the weight old / sampler; None weighs nothing
    kl_coefficient: float = 0.0  # of k3 to the reference policy
    entropy_coefficient: float = 0.0

    def __post_init__(self):
        if self.aggregation not in AGGREGATIONS:
            raise ValueError(
                f"objective.aggregation={self.aggregation!r} is not known; use one of "
                f"{', '.join(AGGREGATIONS)}."
            )
        for name, known in (
            ("loss", ("clip", "cispo")),
            ("ratio", ("token", "sequence")),
            ("old", ("trainer", "sampler")),
            ("importance", ("token", "sequence")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"objective.{name}={getattr(self, name)!r} is not known; use "
                    f"{' or '.join(known)}."
                )
        if self.old == "sampler" and self.importance_cap is not None:
            raise ValueError(
                f"objective.old='sampler' with importance_cap={self.importance_cap}: ratios that "
                "start from the sampler hold that weight already. Set importance_cap=None."
            )
        if self.importance == "sequence" and self.importance_cap is None:
            raise ValueError(
                "objective.importance='sequence' with importance_cap=None: there is no weight. Set "
                "a cap or importance='token'."
            )
        if (self.aggregation == "fixed_length") != (self.fixed_tokens is not None):
            raise ValueError(
                f"objective.fixed_tokens={self.fixed_tokens} with aggregation={self.aggregation!r}"
                ": fixed_length needs it, the others do not use it. Set both or neither."
            )
        if self.fixed_tokens is not None and self.fixed_tokens < 1:
            raise ValueError(f"objective.fixed_tokens={self.fixed_tokens}: set it to at least 1.")
        if (self.loss == "cispo") != (self.cispo_cap is not None):
            raise ValueError(
                f"objective.cispo_cap={self.cispo_cap} with loss={self.loss!r}: cispo needs it, "
                "clip does not use it. Set both or neither."
            )
        if self.loss == "cispo" and (self.ratio != "token" or self.dual_clip is not None):
            raise ValueError(
                f"objective.loss='cispo' with ratio={self.ratio!r} and dual_clip={self.dual_clip}: "
                "cispo clips token ratios by cispo_cap alone. Use ratio='token', dual_clip=None."
            )
        if not 0 < self.clip_low < 1 or self.clip_high <= 0:
            raise ValueError(
                f"objective.clip_low={self.clip_low}, clip_high={self.clip_high}: use 0 < clip_low "
                "< 1 and clip_high > 0."
            )
        for name, floor in (("dual_clip", 1.0), ("cispo_cap", 0.0), ("importance_cap", 0.0)):
            value = getattr(self, name)
            if value is not None and not value > floor:
                raise ValueError(f"objective.{name}={value}: set it above {floor} or to None.")
        if self.kl_coefficient < 0:
            raise ValueError(f"objective.kl_coefficient={self.kl_coefficient}: at least 0.")


class TokenLoss(NamedTuple):
    """Parts of the loss, per token; anything where the mask is 0."""

    policy_BT: jax.Array  # policy gradient, importance weight included
    kl_BT: jax.Array  # k3 to the reference policy; 0 without one
    ratio_BT: jax.Array
    clipped_BT: jax.Array  # 1 where the clipped surrogate is the larger one
    importance_BT: jax.Array  # the truncated weight


def token_loss(
    logp_BT: jax.Array,
    old_BT: jax.Array,
    advantage_BT: jax.Array,
    mask_BT: jax.Array,
    sequences_BT: jax.Array,
    tokens_Q: jax.Array,
    config: ObjectiveConfig,
    *,
    sampler_BT: jax.Array | None = None,
    reference_BT: jax.Array | None = None,
) -> TokenLoss:
    """Compute the losses of tokens; only logp_BT carries a gradient.

    Args:
      logp_BT: log-probabilities of the sampled tokens under the policy in training.
      old_BT: the same before this update.
      advantage_BT: advantage of the token's sequence.
      mask_BT: 1 for trained tokens.
      sequences_BT: index of the token's sequence, in [0, Q); anything valid where the mask is 0.
      tokens_Q: trained tokens of each sequence.
      sampler_BT: what the sampler reported; None gives every token the importance weight 1.
      reference_BT: under the frozen reference policy; None gives no KL term.
    """
    old_BT, advantage_BT = jax.lax.stop_gradient((old_BT, advantage_BT))
    change_BT = jnp.where(mask_BT > 0, logp_BT - old_BT, 0.0)
    if config.ratio == "sequence":
        total_BT = _over_sequences(change_BT, sequences_BT, tokens_Q)
        change_BT = total_BT / jnp.maximum(tokens_Q, 1)[sequences_BT]
    ratio_BT = jnp.exp(change_BT)
    if config.loss == "cispo":
        capped_BT = jax.lax.stop_gradient(jnp.minimum(ratio_BT, config.cispo_cap))
        policy_BT = -capped_BT * advantage_BT * jnp.where(mask_BT > 0, logp_BT, 0.0)
        clipped_BT = (ratio_BT > config.cispo_cap).astype(jnp.float32)
    else:
        policy_BT, clipped_BT = clipped_surrogate(ratio_BT, advantage_BT, config)
    importance_BT = jnp.ones_like(ratio_BT)
    if sampler_BT is not None and config.importance_cap is not None:
        gap_BT = jnp.where(mask_BT > 0, old_BT - sampler_BT, 0.0)
        if config.importance == "sequence":
            gap_BT = _over_sequences(gap_BT, sequences_BT, tokens_Q)
        importance_BT = importance_weight(gap_BT, config.importance_cap)
    kl_BT = jnp.zeros_like(ratio_BT)
    if reference_BT is not None:
        kl_BT = k3(jnp.where(mask_BT > 0, jax.lax.stop_gradient(reference_BT) - logp_BT, 0.0))
    return TokenLoss(importance_BT * policy_BT, kl_BT, ratio_BT, clipped_BT, importance_BT)


def clipped_surrogate(
    ratio_BT: jax.Array, advantage_BT: jax.Array, config: ObjectiveConfig
) -> tuple[jax.Array, jax.Array]:
    """Take the larger of the two surrogate losses. Returns (loss_BT, 1 where clipping decided)."""
    free_BT = -advantage_BT * ratio_BT
    bound_BT = -advantage_BT * jnp.clip(ratio_BT, 1 - config.clip_low, 1 + config.clip_high)
    loss_BT = jnp.maximum(free_BT, bound_BT)
    if config.dual_clip is not None:
        ceiling_BT = -advantage_BT * config.dual_clip
        loss_BT = jnp.where(advantage_BT < 0, jnp.minimum(loss_BT, ceiling_BT), loss_BT)
    return loss_BT, (bound_BT > free_BT).astype(jnp.float32)


def importance_weight(gap_BT: jax.Array, cap: float) -> jax.Array:
    """Truncate exp(gap) to [0, cap], without gradient.

    The gap is old - sampler log-probability of a token, or its sum over the sequence. `old` is the
    policy at the start of the update: what changes within it is the ratio's business.
    """
    return jax.lax.stop_gradient(jnp.clip(jnp.exp(gap_BT), 0.0, cap))


def _over_sequences(value_BT, sequences_BT, tokens_Q) -> jax.Array:
    """Give every token the sum over its sequence; a sequence lies within one row."""
    total_Q = jnp.zeros(tokens_Q.shape, value_BT.dtype).at[sequences_BT].add(value_BT)
    return total_Q[sequences_BT]


def k3(gap_BT: jax.Array) -> jax.Array:
    """Estimate KL(policy, reference) by exp(q) - q - 1, q = reference - policy log-probability.

    Source: http://joschu.net/blog/kl-approx.html; capped at 10 like the reference implementation.
    """
    # The bound on q keeps exp finite; the value there is beyond the cap anyway.
    bounded_BT = jnp.clip(gap_BT, -20.0, 20.0)
    return jnp.minimum(jnp.exp(bounded_BT) - bounded_BT - 1.0, LARGEST_KL)


def token_weights(
    mask_BT: jax.Array,
    sequences_BT: jax.Array,
    tokens_Q: jax.Array,
    real_Q: jax.Array,
    config: ObjectiveConfig,
) -> jax.Array:
    """Weigh tokens so that the weighted sum over all rows is the aggregation of the config.

    A sequence without trained tokens adds nothing and still counts as a sequence.

    Args:
      mask_BT: 1 for trained tokens.
      sequences_BT: index of the token's sequence, in [0, Q).
      tokens_Q: trained tokens of each sequence, over the whole batch.
      real_Q: True for sequences that exist, masked ones included; False for padding of the table.
    Returns:
      weight_BT, 0 where the mask is 0.
    """
    sequences = jnp.maximum(real_Q.sum(), 1).astype(jnp.float32)
    if config.aggregation == "token_mean":
        return mask_BT / jnp.maximum(jnp.where(real_Q, tokens_Q, 0).sum(), 1)
    if config.aggregation == "fixed_length":
        return mask_BT / (sequences * config.fixed_tokens)
    if config.aggregation == "sequence_sum":
        return mask_BT / sequences
    return mask_BT / (sequences * jnp.maximum(tokens_Q, 1)[sequences_BT])
