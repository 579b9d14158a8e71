"""Wages: what each sequence of a batch earns, in both roles.

In: the tables of a `Batch` and the curriculum. Out: the curriculum moved by this iteration, and an
advantage per sequence. Pure `jax.numpy`, called inside the jitted update; the formulas are in
`credit.py` and `advantages.py`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from spade_jax import advantages, credit, curriculum, records
from spade_jax import batch as batches


def pay(
    before: curriculum.CurriculumState,
    batch: batches.Batch,
    config: credit.CreditConfig,
    curriculum_config: curriculum.CurriculumConfig,
) -> tuple[curriculum.CurriculumState, dict[str, jax.Array]]:
    """Move the curriculum by this iteration and give every sequence its advantage.

    Returns:
      the curriculum after these plays, and a dict: advantage_Q and tokens_Q (trained tokens, 0 for
      sequences that are masked) with everything that led to them.
    """
    start = curriculum.reset(before, batch.reset_P, batch.skill_P)
    regret = credit.paired_regret(batch.returns_NSGA, batch.valid_NSGA)
    table = (batch.slots_N, batch.returns_NSGA, batch.valid_NSGA, batch.faults_NSGA)
    after = curriculum.fold(start, *table, regret, curriculum_config)
    agent_NSG = advantages.agent_advantage(
        batch.returns_NSGA[..., records.PLAIN],
        batch.valid_NSGA[..., records.PLAIN],
        batch.lengths_NSG,
        config,
    )
    raw_M, paid_M, penalty_M, parts_M = designer_rewards(start, after, batch, config)
    skills = records.MOST_SKILLS
    designer_M = credit.centre_by_skill(raw_M, batch.skill_M, paid_M, skills, config.lonely)

    own_Q = batch.roles_Q == records.DESIGNER
    draft_Q = jnp.where(own_Q, batch.index_Q, 0)
    play_Q = jnp.where(own_Q, 0, batch.index_Q)
    advantage_Q = jnp.where(own_Q, designer_M[draft_Q], agent_NSG.reshape(-1)[play_Q])
    long_Q = jnp.zeros_like(own_Q)
    if config.overlong == "mask":
        long_Q = ~own_Q & (batch.lengths_NSG.ravel()[play_Q] > config.max_reply_tokens)
    tokens_Q = jnp.where((own_Q & ~paid_M[draft_Q]) | long_Q, 0, batch.tokens_Q)
    factor_2 = advantages.role_factors(advantage_Q, tokens_Q, batch.roles_Q, config)
    advantage_Q = advantage_Q * factor_2[batch.roles_Q]
    return after, _counts(batch, advantage_Q, tokens_Q, paid_M) | _table_rates(batch) | {
        "advantage_Q": advantage_Q,
        "tokens_Q": tokens_Q,
        "overlong_plays": (long_Q & (batch.tokens_Q > 0)).sum(),
        "regret_N": regret.mean_N,
        "regret_se_N": regret.se_N,
        "paired_N": regret.paired_N,
        "shrunk_N": credit.shrink(regret),
        "designer_raw_M": raw_M,
        "designer_paid_M": paid_M,
        "designer_penalty_M": penalty_M,
        **parts_M,
        "designer_advantage_M": designer_M * factor_2[records.DESIGNER],
        "agent_advantage_NSG": agent_NSG * factor_2[records.AGENT],
        "role_factor_2": factor_2,
        "advantage_rms_2": advantages.rms_by_role(advantage_Q, tokens_Q, batch.roles_Q),
    }


def designer_rewards(
    start: curriculum.CurriculumState,
    after: curriculum.CurriculumState,
    batch: batches.Batch,
    config: credit.CreditConfig,
) -> tuple[jax.Array, jax.Array, jax.Array, dict[str, jax.Array]]:
    """Value the drafts that are due by the whole life of their environments.

    A refused draft earns its fixed reward. One whose plays were all lost to our own faults, or
    that nobody judged, is not paid: it is masked and no number stands for it. So is one with a
    negative blend and no penalty, as in the reference. One that only ever failed by its own fault
    earns its penalty alone.

    Args:
      start: curriculum before this iteration's plays.
      after: with them.
    Returns:
      raw_M, paid_M, penalty_M, and the parts of the blend by name, -1 where nobody played.
    """
    regret = curriculum.regret_of(after)
    regret_P = credit.shrink(regret) if config.estimate == "shrunk" else regret.mean_N
    started_P = start.skill_plays_Z[after.skill_P] > 0
    slow_Z = jnp.stack([after.tracker_slow_Z, start.tracker_slow_Z])
    expected_P = slow_Z[started_P.astype(jnp.int32), after.skill_P]
    life = curriculum.life(after, regret_P, expected_P)
    base_P = credit.designer_raw(life, config)
    base_P = jnp.where(after.plays_P > 0, base_P, 0.0)
    fault_P = credit.fault_penalty(after.faults_P, after.plays_P + after.hinted_plays_P, config)

    refused_M = batch.slot_M < 0
    slot_M = jnp.maximum(batch.slot_M, 0)
    penalty_M = jnp.where(refused_M, 0.0, batch.penalty_M + fault_P[slot_M])
    raw_M = jnp.where(refused_M, batch.fixed_M, base_P[slot_M] - penalty_M)
    judged_M = ((after.plays_P > 0) | (after.faults_P > 0))[slot_M]
    if config.variant == "blend":
        judged_M &= (base_P[slot_M] >= 0) | (penalty_M > 0)
    paid_M = batch.valid_M & (refused_M | judged_M)
    played_M = ~refused_M & (after.plays_P > 0)[slot_M]
    parts_M = {
        f"part_{name}_M": jnp.where(played_M, part_P[slot_M], -1.0)
        for name, part_P in credit.parts(life, config).items()
    }
    return jnp.where(paid_M, raw_M, 0.0), paid_M, penalty_M, parts_M


def _table_rates(batch: batches.Batch) -> dict[str, jax.Array]:
    """Mean return of each row of the table in this iteration, NaN without plays."""
    plays_NA = batch.valid_NSGA.sum((1, 2))
    total_NA = jnp.where(batch.valid_NSGA, batch.returns_NSGA, 0.0).sum((1, 2))
    mean_NA = jnp.where(plays_NA > 0, total_NA / jnp.maximum(plays_NA, 1), jnp.nan)
    return {"win_rate_N": mean_NA[:, records.PLAIN], "hinted_rate_N": mean_NA[:, records.HINTED]}


def _counts(batch: batches.Batch, advantage_Q, tokens_Q, paid_M) -> dict[str, jax.Array]:
    """Count sequences that the step itself left out, and those with a gradient."""
    trained_Q = tokens_Q > 0
    live_Q = trained_Q & (advantage_Q != 0)
    return {
        "trained_2": jnp.zeros(2).at[batch.roles_Q].add(trained_Q),
        "live_2": jnp.zeros(2).at[batch.roles_Q].add(live_Q),
        "unpaid_drafts": (batch.valid_M & ~paid_M).sum(),
    }
