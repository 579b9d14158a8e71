"""Advantages: what a play is worth beside its group, and how hard each role pulls.

Pure `jax.numpy` on fixed shapes, called inside the jitted update. What a draft earns is in
`credit.py`.
Sources: GRPO (arXiv:2402.03300); SPADE, arXiv:2608.19197, for the balance of the roles.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from spade_jax import credit, records

LARGEST_SCALE = 50.0  # cap of the factor between the roles, in the reference and here


def agent_advantage(
    returns_NSG: jax.Array,
    valid_NSG: jax.Array,
    lengths_NSG: jax.Array,
    config: credit.CreditConfig,
) -> jax.Array:
    """Compare plays by the baseline of the config, after the rule for replies that are too long.

    "group": minus the mean of the group, over its deviation (GRPO; Dr. GRPO with std "none").
    "leave_one_out": minus the mean of the others of the group (RLOO, arXiv:2402.14740).
    "batch": minus mean and over deviation of all plays (REINFORCE++, arXiv:2501.03262).
    "group_then_batch": minus the mean of the group, over the deviation of all plays (there the
    "baseline" form). Both weigh plays alike, where some implementations weigh them by tokens.

    Args:
      returns_NSG: returns; anything where not valid.
      valid_NSG: True for plays that count.
      lengths_NSG: reply tokens of each play.
    Returns:
      advantages_NSG: 0 for plays that do not count.
    """
    if config.overlong == "mask":
        valid_NSG &= lengths_NSG <= config.max_reply_tokens
    elif config.overlong == "soft":
        returns_NSG = returns_NSG - overlong_charge(
            lengths_NSG, config.max_reply_tokens, config.overlong_ramp_tokens
        )
    if config.baseline == "group":
        return group_advantage(returns_NSG, valid_NSG, std=config.std)
    if config.baseline == "batch":
        flat = group_advantage(returns_NSG.ravel(), valid_NSG.ravel(), std=config.std)
        return flat.reshape(returns_NSG.shape)
    centred_NSG = group_advantage(returns_NSG, valid_NSG, std="none")
    if config.baseline == "leave_one_out":
        others_NS1 = jnp.maximum(valid_NSG.sum(-1, keepdims=True) - 1, 1)
        return centred_NSG * (others_NS1 + 1) / others_NS1
    flat = group_advantage(centred_NSG.ravel(), valid_NSG.ravel(), std=config.std)
    return flat.reshape(returns_NSG.shape)


def overlong_charge(lengths: jax.Array, limit_tokens: int, ramp_tokens: int) -> jax.Array:
    """Charge 0 up to limit - ramp tokens, rising linearly to 1 at the limit and 1 beyond it.

    Source: soft overlong punishment of DAPO, arXiv:2503.14476, equation 13, in tokens.
    """
    over = lengths.astype(jnp.float32) - (limit_tokens - ramp_tokens)
    return jnp.clip(over / ramp_tokens, 0.0, 1.0)


def group_advantage(
    returns_NSG: jax.Array,
    valid_NSG: jax.Array,
    std: str = "population",
    epsilon: float = 1e-8,
) -> jax.Array:
    """Compare each play with the valid plays of its group, the last axis.

    Args:
      returns_NSG: returns; anything where not valid.
      valid_NSG: True for plays that count.
      std: "population" or "sample" divides by that deviation, "none" only centres.
      epsilon: added to the deviation.
    Returns:
      advantages_NSG: 0 for plays that do not count, for a group of one and where all are equal.
    """
    returns_NSG = jnp.where(valid_NSG, returns_NSG.astype(jnp.float32), 0.0)
    count_NS1 = valid_NSG.sum(-1, keepdims=True)
    mean_NS1 = returns_NSG.sum(-1, keepdims=True) / jnp.maximum(count_NS1, 1)
    centred_NSG = jnp.where(valid_NSG, returns_NSG - mean_NS1, 0.0)
    if std != "none":
        freedom_NS1 = jnp.maximum(count_NS1 - (std == "sample"), 1)
        square_NS1 = (centred_NSG**2).sum(-1, keepdims=True)
        centred_NSG = centred_NSG / (jnp.sqrt(square_NS1 / freedom_NS1) + epsilon)
    # Rounding of the mean leaves a residue that the division would blow up.
    low_NS1 = jnp.where(valid_NSG, returns_NSG, jnp.inf).min(-1, keepdims=True)
    high_NS1 = jnp.where(valid_NSG, returns_NSG, -jnp.inf).max(-1, keepdims=True)
    return jnp.where(low_NS1 < high_NS1, centred_NSG, 0.0)


def ema_baseline_advantage(
    returns_G: jax.Array, baseline: jax.Array, started: jax.Array, decay: float = 0.5
) -> tuple[jax.Array, jax.Array]:
    """Subtract a running baseline, 0 until started, which the first mean sets and later ones move.

    Kept for exact cases; no run uses it.

    Returns:
      advantages_G, and the baseline after these plays.
    """
    mean = returns_G.mean(-1)
    moved = jnp.where(started, decay * baseline + (1 - decay) * mean, mean)
    return returns_G - jnp.where(started, baseline, 0.0), moved


def reference_role_scale(n_designer: jax.Array, n_agent: jax.Array, interval: int) -> jax.Array:
    """min(n_agent / n_designer * interval, 50), and 1 where a count is 0."""
    ratio = n_agent / jnp.maximum(n_designer, 1) * interval
    return jnp.where((n_designer > 0) & (n_agent > 0), jnp.minimum(ratio, LARGEST_SCALE), 1.0)


def role_factors(
    advantage_Q: jax.Array, tokens_Q: jax.Array, role_Q: jax.Array, config: credit.CreditConfig
) -> jax.Array:
    """Choose the factor of each role's advantages.

    "rms": the designer's root mean square over its trained tokens becomes the agent's (by a factor
    of at most 50), so that the roles pull equally hard; where one role has no signal nothing is
    scaled. "reference": the designer's are multiplied by the reference's fixed factor.

    Args:
      advantage_Q: per sequence.
      tokens_Q: trained tokens per sequence; 0 for one that is masked.
      role_Q: records.DESIGNER or records.AGENT.
    Returns:
      factor_2, by role id, role weights included.
    """
    weight_2 = jnp.array([config.designer_weight, config.agent_weight], jnp.float32)
    trained_Q = tokens_Q > 0
    if config.role_scale == "none":
        return weight_2
    if config.role_scale == "reference":
        if config.interval < 1:
            raise ValueError("credit.interval=0 with role_scale='reference': set it above 0.")
        designers = (trained_Q & (role_Q == records.DESIGNER)).sum()
        agents = (trained_Q & (role_Q == records.AGENT)).sum()
        scale = reference_role_scale(designers, agents, config.interval)
    else:
        designer, agent = (rms_by_role(advantage_Q, tokens_Q, role_Q)[r] for r in (0, 1))
        both = (designer > 1e-6) & (agent > 1e-6)
        ratio = agent / jnp.where(both, designer, 1.0)
        scale = jnp.where(both, jnp.minimum(ratio, LARGEST_SCALE), 1.0)
    return weight_2.at[records.DESIGNER].multiply(scale)


def rms_by_role(advantage_Q: jax.Array, tokens_Q: jax.Array, role_Q: jax.Array) -> jax.Array:
    """Take the root mean square of the advantages over the trained tokens of each role: rms_2."""
    tokens_2 = jnp.zeros(2).at[role_Q].add(tokens_Q.astype(jnp.float32))
    square_2 = jnp.zeros(2).at[role_Q].add(tokens_Q * advantage_Q**2)
    return jnp.sqrt(square_2 / jnp.maximum(tokens_2, 1.0))
