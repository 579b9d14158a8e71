"""Credit: from a table of returns to what drafts earn.

Pure `jax.numpy` on fixed shapes, called inside the jitted update. Each formula of the method is one
function. What plays earn is in
`advantages.py`. Axes: see `records.py`; O is the age of an environment in draws.
Source: SPADE, arXiv:2608.19197, sections on returns, regret and the designer's reward.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from spade_jax import records

STDS = ("population", "sample", "none")
BASELINES = ("group", "leave_one_out", "batch", "group_then_batch")
OVERLONG = ("none", "soft", "mask")
ROLE_SCALES = ("rms", "reference", "none")
PRIOR_FREEDOM = 4.0  # degrees of freedom that the pool lends to one environment's variance
LARGEST_VARIANCE = 0.25  # of a return in [0, 1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CreditConfig:
    """Which formula pays whom."""

    baseline: str = "group"  # what a play is compared with; see advantages.agent_advantage
    std: str = "population"  # divisor of the agent's advantage
    overlong: str = "none"  # replies of a play above max_reply_tokens: "soft" charges, "mask" drops
    max_reply_tokens: int | None = None  # of all turns of a play together
    overlong_ramp_tokens: int | None = None  # of "soft": below the limit, where the charge begins
    estimate: str = "shrunk"  # regret the designer is paid for: "shrunk" or "raw"
    variant: str = "blend"  # the designer's raw reward, a key of VARIANTS
    regret_weight: float = 0.4
    plateau_weight: float = 0.6
    progress_weight: float = 0.0
    frontier_weight: float = 0.0
    regret_scale: float = 0.15  # regret that earns the full weight
    progress_scale: float = 0.1
    frontier_scale: float = 0.08
    regret_floor: bool = True  # False pays negative regret and more than the full weight
    plateau_low: float = 0.4  # win rates in [low, high] earn the full weight
    plateau_high: float = 0.6
    plateau_ramp: float = 0.25  # distance outside at which nothing is earned
    variance_weight: float = 0.0  # of the variance bonus beside learning_potential
    lonely: str = "overall"  # mean of a skill with one draft: "overall" of all skills, or its "own"
    fault_penalty: float = 1.0  # once, for an environment with any fault of its own
    fault_share_penalty: float = 0.5  # times the share of its plays that were faulty
    role_scale: str = "rms"  # "rms", "reference" or "none"
    designer_weight: float = 1.0
    agent_weight: float = 1.0
    interval: int = 0  # k of the reference's multiplier: 0 takes design.every, see settings

    def __post_init__(self):
        _one_of("credit.std", self.std, STDS)
        _one_of("credit.baseline", self.baseline, BASELINES)
        _one_of("credit.overlong", self.overlong, OVERLONG)
        if self.baseline == "leave_one_out" and self.std != "none":
            raise ValueError(
                f"credit.baseline='leave_one_out' with std={self.std!r}: RLOO does not divide. Set "
                "std='none'."
            )
        if self.baseline.endswith("batch") and self.std == "none":
            raise ValueError(
                f"credit.baseline={self.baseline!r} with std='none': REINFORCE++ divides by the "
                "deviation of the batch. Set std to 'population' or 'sample'."
            )
        self._check_overlong()
        _one_of("credit.estimate", self.estimate, ("shrunk", "raw"))
        _one_of("credit.lonely", self.lonely, ("overall", "own"))
        _one_of("credit.variant", self.variant, tuple(VARIANTS))
        _one_of("credit.role_scale", self.role_scale, ROLE_SCALES)
        for name in ("regret_scale", "progress_scale", "frontier_scale", "plateau_ramp"):
            if getattr(self, name) <= 0:
                raise ValueError(f"credit.{name}={getattr(self, name)} divides: set it above 0.")
        if not self.plateau_low <= self.plateau_high:
            raise ValueError(
                f"credit.plateau_low={self.plateau_low} is above plateau_high={self.plateau_high}; "
                "swap them."
            )
        if min(self.designer_weight, self.agent_weight) < 0:
            raise ValueError(
                f"credit.designer_weight={self.designer_weight} and credit.agent_weight="
                f"{self.agent_weight} must be at least 0; a negative one trains for the opposite."
            )

    def _check_overlong(self):
        limit, ramp = self.max_reply_tokens, self.overlong_ramp_tokens
        needed = (self.overlong != "none", self.overlong == "soft")
        if (limit is not None, ramp is not None) != needed:
            raise ValueError(
                f"credit.overlong={self.overlong!r} with max_reply_tokens={limit} and "
                f"overlong_ramp_tokens={ramp}: 'soft' needs both, 'mask' the first, 'none' neither."
            )
        if limit is not None and not 0 < (ramp or 1) <= limit:
            raise ValueError(
                f"credit.max_reply_tokens={limit}, overlong_ramp_tokens={ramp}: use 0 < ramp <= "
                "limit."
            )


class Regret(NamedTuple):
    """How much the hint lifts the return."""

    mean_N: jax.Array  # units of return; 0 where no seed has both arms
    se_N: jax.Array  # standard error; 0 where there is no pair
    paired_N: jax.Array  # True where at least one seed has both arms


class Life(NamedTuple):
    """What is known of an environment when its draft is paid."""

    win_rate_N: jax.Array  # mean return of its plain plays
    variance_N: jax.Array  # population variance of those returns
    regret_N: jax.Array  # 0 where there is no pair
    offset_mean_NO: jax.Array  # mean return by age
    offset_plays_NO: jax.Array  # plain plays by age
    expected_N: jax.Array  # slow mean return of the skill, before these plays


def episode_return(rewards_ET: jax.Array, steps_E: jax.Array, terminated_E: jax.Array) -> jax.Array:
    """Value episodes by their last reward, clipped to [-1, 1], and 0 unless terminated.

    Stands here for exact cases; play does it in `rollout.py`.

    Args:
      rewards_ET: step rewards; entries from steps_E on are ignored.
      steps_E: steps taken; 0 gives a return of 0.
      terminated_E: the environment ended the episode itself.
    Returns:
      returns_E.
    """
    last_E = jnp.maximum(steps_E - 1, 0)[:, None]
    reward_E = jnp.take_along_axis(rewards_ET, last_E, axis=1)[:, 0]
    return jnp.where(terminated_E & (steps_E > 0), jnp.clip(reward_E, -1.0, 1.0), 0.0)


def paired_regret(returns_NSGA: jax.Array, valid_NSGA: jax.Array) -> Regret:
    """Measure how far the hint lifts the return, seed by seed, and how sure that is.

    `mean` is the mean over seeds with both arms of (hinted mean - plain mean). Its variance is
    sum_s sum_a v_a / plays_sa / seeds^2, where v_a is the variance of returns within a seed. Two
    to four seeds say nothing about the spread between them and four plays little about the spread
    within, so v_a is pooled over the seeds of an arm and moderated by the pool of environments:
    (squares_a + 4 v_0) / (freedom_a + 4), v_0 being the variance over all environments and both
    arms (with one degree of freedom of variance 1/4, so that it is never 0). The error is that of
    the seeds played: differences between seeds count as signal.

    Args:
      returns_NSGA: returns by environment, seed, play and arm.
      valid_NSGA: True for plays that count.
    """
    returns_NSGA = jnp.where(valid_NSGA, returns_NSGA.astype(jnp.float32), 0.0)
    plays_NSA = valid_NSGA.sum(2).astype(jnp.float32)
    mean_NSA = returns_NSGA.sum(2) / jnp.maximum(plays_NSA, 1)
    square_NSA = jnp.where(valid_NSGA, (returns_NSGA - mean_NSA[:, :, None]) ** 2, 0.0).sum(2)
    freedom_NSA = jnp.maximum(plays_NSA - 1, 0)
    prior = (square_NSA.sum() + LARGEST_VARIANCE) / (freedom_NSA.sum() + 1)
    variance_NA = (square_NSA.sum(1) + PRIOR_FREEDOM * prior) / (freedom_NSA.sum(1) + PRIOR_FREEDOM)

    both_NS = (plays_NSA > 0).all(-1)
    seeds_N = both_NS.sum(1)
    gap_NS = mean_NSA[..., records.HINTED] - mean_NSA[..., records.PLAIN]
    mean_N = jnp.where(both_NS, gap_NS, 0.0).sum(1) / jnp.maximum(seeds_N, 1)
    error_NS = (variance_NA[:, None] / jnp.maximum(plays_NSA, 1)).sum(-1)
    se_N = jnp.sqrt(jnp.where(both_NS, error_NS, 0.0).sum(1)) / jnp.maximum(seeds_N, 1)
    return Regret(mean_N, se_N, seeds_N > 0)


def shrink(regret: Regret) -> jax.Array:
    """Pull regrets to 0 as far as their errors explain their size (empirical Bayes).

    regret * tau^2 / (tau^2 + se^2), tau^2 = max(0, mean of regret^2 - mean of se^2) over the
    environments with a pair: regrets are drawn from N(0, tau^2), so that a pool whose regrets are
    all alike and large keeps them. Fewer than two such environments say nothing: all are 0.
    """
    count = regret.paired_N.sum()
    square = jnp.where(regret.paired_N, regret.mean_N**2 - regret.se_N**2, 0.0).sum()
    tau2 = jnp.where(count > 1, jnp.maximum(square / jnp.maximum(count, 1), 0.0), 0.0)
    total_N = tau2 + regret.se_N**2
    factor_N = jnp.where(total_N > 0, tau2 / jnp.where(total_N > 0, total_N, 1.0), 0.0)
    return jnp.where(regret.paired_N, regret.mean_N * factor_N, 0.0)


def designer_raw(life: Life, config: CreditConfig) -> jax.Array:
    """Pay environments by the variant of the config, before penalties. Returns raw_N."""
    return VARIANTS[config.variant](life, config)


def blend(life: Life, config: CreditConfig) -> jax.Array:
    """Weigh regret, progress, plateau and distance from the frontier: the paper's reward."""
    return (
        config.regret_weight * normalised_regret(life.regret_N, config)
        + config.progress_weight * progress_slope(life) / config.progress_scale
        + config.plateau_weight * solve_rate(life, config)
        - config.frontier_weight * frontier_penalty(life.win_rate_N) / config.frontier_scale
    )


def parts(life: Life, config: CreditConfig) -> dict[str, jax.Array]:
    """Give each part of the blend by name, before its weight, whatever variant pays."""
    return {
        "regret": normalised_regret(life.regret_N, config),
        "plateau": solve_rate(life, config),
        "progress": progress_slope(life) / config.progress_scale,
        "frontier": frontier_penalty(life.win_rate_N) / config.frontier_scale,
        "late_minus_early": late_minus_early(life),
        "variance": life.variance_N,
    }


def normalised_regret(regret_N: jax.Array, config: CreditConfig) -> jax.Array:
    """Divide regret by the scale; with the floor, clip it to [0, 1]."""
    ratio_N = regret_N / config.regret_scale
    return jnp.clip(ratio_N, 0.0, 1.0) if config.regret_floor else ratio_N


def regret_reward(life: Life, config: CreditConfig) -> jax.Array:
    """Pay regret itself, at least 0."""
    return jnp.maximum(life.regret_N, 0.0)


def reference_regret_reward(
    regret_N: jax.Array, timeout_N: jax.Array, sound_N: jax.Array
) -> jax.Array:
    """Pay -0.5 for a step timeout and 0 for an unsound program; for exact cases, no run uses it."""
    raw_N = jnp.where(sound_N, jnp.maximum(regret_N, 0.0), 0.0)
    return jnp.where(timeout_N, -0.5, raw_N)


def learning_potential(life: Life, config: CreditConfig) -> jax.Array:
    """Pay the distance of the mean return from what the skill's slow mean expected."""
    bonus_N = config.variance_weight * variance_bonus(life.variance_N)
    return jnp.abs(life.win_rate_N - life.expected_N) + bonus_N


def micro_progress(life: Life, config: CreditConfig) -> jax.Array:
    """Pay the rise of the mean return from the first to the last half of the life, at least 0."""
    return jnp.maximum(late_minus_early(life), 0.0)


def frontier(life: Life, config: CreditConfig) -> jax.Array:
    """Pay closeness to a win rate of one half: 1 there, 0 at 0 and 1."""
    return 1.0 - 4.0 * frontier_penalty(life.win_rate_N)


def solve_rate(life: Life, config: CreditConfig) -> jax.Array:
    """Pay the plateau of the win rate alone."""
    return plateau(life.win_rate_N, config.plateau_low, config.plateau_high, config.plateau_ramp)


def variance_reward(life: Life, config: CreditConfig) -> jax.Array:
    """Pay a variance of returns near that of a fair coin."""
    return variance_bonus(life.variance_N)


def plateau(win_rate_N: jax.Array, low: float, high: float, ramp: float) -> jax.Array:
    """Give 1 on [low, high], falling linearly to 0 over `ramp` on either side."""
    distance_N = jnp.maximum(jnp.maximum(low - win_rate_N, win_rate_N - high), 0.0)
    return jnp.maximum(0.0, 1.0 - distance_N / ramp)


def frontier_penalty(win_rate_N: jax.Array) -> jax.Array:
    """Square the distance of the win rate from one half."""
    return (win_rate_N - 0.5) ** 2


def variance_bonus(variance_N: jax.Array) -> jax.Array:
    """exp(-(variance - 1/4)^2 / 0.02), 1 for returns of a fair coin."""
    return jnp.exp(-((variance_N - 0.25) ** 2) / 0.02)


def progress_slope(life: Life) -> jax.Array:
    """Fit a line through the means by age, weighted by plays; return its rise over the life."""
    weight_NO = life.offset_plays_NO.astype(jnp.float32)
    age_O = jnp.arange(weight_NO.shape[-1], dtype=jnp.float32)
    total_N1 = jnp.maximum(weight_NO.sum(-1, keepdims=True), 1.0)
    age_NO = age_O - (weight_NO * age_O).sum(-1, keepdims=True) / total_N1
    mean_N1 = (weight_NO * life.offset_mean_NO).sum(-1, keepdims=True) / total_N1
    spread_N = (weight_NO * age_NO**2).sum(-1)
    rise_N = (weight_NO * age_NO * (life.offset_mean_NO - mean_N1)).sum(-1)
    slope_N = jnp.where(spread_N > 0, rise_N / jnp.where(spread_N > 0, spread_N, 1.0), 0.0)
    return slope_N * jnp.maximum((weight_NO > 0).sum(-1) - 1, 0)


def late_minus_early(life: Life) -> jax.Array:
    """Subtract the mean over the first half of the ages from that over the last half.

    A middle age belongs to neither half; ages without plays do not count; one age gives 0.
    """
    played_NO = life.offset_plays_NO > 0
    ages_N1 = played_NO.sum(-1, keepdims=True)
    rank_NO = jnp.cumsum(played_NO, -1) - 1
    half_N1 = ages_N1 // 2
    early_NO = played_NO & (rank_NO < half_N1)
    late_NO = played_NO & (rank_NO >= ages_N1 - half_N1)
    means = [
        jnp.where(mask_NO, life.offset_mean_NO, 0.0).sum(-1) / jnp.maximum(half_N1[:, 0], 1)
        for mask_NO in (late_NO, early_NO)
    ]
    return means[0] - means[1]


def track(
    fast_Z: jax.Array,
    slow_Z: jax.Array,
    started_Z: jax.Array,
    value_Z: jax.Array,
    fast_rate: float,
    slow_rate: float,
) -> tuple[jax.Array, jax.Array]:
    """Move a fast and a slow mean: mu <- (1 - rate) mu + rate value; a first value sets both."""
    return (
        jnp.where(started_Z, (1 - fast_rate) * fast_Z + fast_rate * value_Z, value_Z),
        jnp.where(started_Z, (1 - slow_rate) * slow_Z + slow_rate * value_Z, value_Z),
    )


FAITHFUL = {  # values of CreditConfig that give the reference's arithmetic
    "std": "population",
    "estimate": "raw",
    "variant": "blend",
    "regret_weight": 0.4,
    "plateau_weight": 0.6,
    "regret_floor": True,
    "lonely": "own",
    "fault_penalty": 0.0,  # the reference ignores both flags in this variant
    "fault_share_penalty": 0.0,
    "role_scale": "reference",
}
VARIANTS = {
    "blend": blend,
    "regret": regret_reward,
    "learning_potential": learning_potential,
    "micro_progress": micro_progress,
    "frontier": frontier,
    "solve_rate": solve_rate,
    "variance": variance_reward,
}


def fault_penalty(faults_N: jax.Array, plays_N: jax.Array, config: CreditConfig) -> jax.Array:
    """Charge an environment for faults of its own; with the defaults it ends at most at 0."""
    share_N = faults_N / jnp.maximum(faults_N + plays_N, 1)
    charge_N = config.fault_penalty + config.fault_share_penalty * share_N
    return jnp.where(faults_N > 0, charge_N, 0.0)


def centre_by_skill(
    raw_M: jax.Array,
    skill_M: jax.Array,
    valid_M: jax.Array,
    skills: int,
    lonely: str = "overall",
) -> jax.Array:
    """Subtract the mean of the valid drafts of the skill.

    A skill with one draft takes the mean of all, or, as in the reference, its own: then it earns 0.
    """
    valued_M = jnp.where(valid_M, raw_M, 0.0)
    count_Z = jnp.zeros(skills).at[skill_M].add(valid_M.astype(jnp.float32))
    total_Z = jnp.zeros(skills).at[skill_M].add(valued_M)
    overall = valued_M.sum() / jnp.maximum(valid_M.sum(), 1)
    least = 2 if lonely == "overall" else 1
    mean_Z = jnp.where(count_Z >= least, total_Z / jnp.maximum(count_Z, 1), overall)
    return jnp.where(valid_M, raw_M - mean_Z[skill_M], 0.0)


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name}={value!r} is not known; use one of {', '.join(known)}.")
