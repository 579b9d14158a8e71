"""Curriculum: what is known of every pool slot and skill, and what should be played next.

The state is a pytree of fixed-shape arrays inside the train state; the functions are pure
`jax.numpy` and run inside the jitted update. Win rates are mean returns, as in the designer's
reward. Counts are float32: exact up to 16 million. O is the age in draws.
Sources: SPADE (arXiv:2608.19197); prioritised level replay (arXiv:2010.03934) for the draw;
learning progress (arXiv:1910.07224) for the skills.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp

from spade_jax import credit, records

RETIREMENTS = ("", "mastered", "out_of_reach", "faulty")  # by retirement code


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurriculumConfig:
    """When environments go, and what makes one worth playing."""

    ages: int = 8  # O, draws of one environment that are told apart; later ones join the last
    fast_rate: float = 0.5  # weight of an iteration in the fast mean of a slot or skill
    slow_rate: float = 0.1
    tracker_fast_rate: float = 0.98  # of the skill means that `learning_potential` compares with
    tracker_slow_rate: float = 0.85
    mastered_win_rate: float = 0.9  # above it, after min_plays plain plays, an environment retires
    min_plays: int = 16
    reach_win_rate: float = 0.1  # hinted win rate below which an environment is out of reach
    min_hinted_plays: int = 8
    give_up_plays: int = 64  # plain plays below reach_win_rate that retire one without hints
    max_fault_share: float = 0.25  # of all plays, from the second fault on
    regret_share: float = 0.5  # of regret's rank against learnability's in the draw score
    staleness_share: float = 0.1  # of staleness in the draw score
    regret_from: Literal["life", "first"] = "life"  # iterations whose gaps are averaged
    exploration_floor: float = 0.3  # share of the drafts that all skills divide equally

    def __post_init__(self):
        if self.ages < 1:
            raise ValueError(f"curriculum.ages={self.ages}: set it to at least 1.")
        shares = ("regret_share", "staleness_share", "exploration_floor", "max_fault_share")
        rates = ("fast_rate", "slow_rate", "tracker_fast_rate", "tracker_slow_rate")
        for name in (*shares, *rates):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"curriculum.{name}={getattr(self, name)}: set it inside [0, 1].")
        if self.slow_rate > self.fast_rate or self.tracker_slow_rate > self.tracker_fast_rate:
            raise ValueError(
                f"curriculum.slow_rate={self.slow_rate}, fast_rate={self.fast_rate}, "
                f"tracker_slow_rate={self.tracker_slow_rate}, tracker_fast_rate="
                f"{self.tracker_fast_rate}: a slow rate above its fast one; swap them."
            )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class CurriculumState:
    """Statistics of the P slots over the life of their environment, and of the Z skills."""

    alive_P: jax.Array  # bool, the slot holds an environment
    skill_P: jax.Array  # int32
    visits_P: jax.Array  # iterations in which it was drawn
    stale_P: jax.Array  # iterations since it was last drawn, or admitted
    plays_P: jax.Array  # valid plain plays
    return_sum_P: jax.Array  # of those
    square_sum_P: jax.Array  # sum of their squared returns
    fast_P: jax.Array  # running means of the plain return
    slow_P: jax.Array
    hinted_plays_P: jax.Array
    hinted_sum_P: jax.Array
    pairs_P: jax.Array  # iterations with a paired gap
    gap_sum_P: jax.Array  # of the gaps, hinted minus plain
    gap_error_P: jax.Array  # sum of their squared standard errors
    faults_P: jax.Array  # plays of either arm that the environment broke
    age_plays_PO: jax.Array  # valid plain plays by age
    age_sum_PO: jax.Array  # their returns
    skill_plays_Z: jax.Array
    skill_fast_Z: jax.Array  # running means of the plain return per skill
    skill_slow_Z: jax.Array
    tracker_fast_Z: jax.Array  # the same at the rates of `learning_potential`
    tracker_slow_Z: jax.Array


def init(slots: int, config: CurriculumConfig) -> CurriculumState:
    """Start with an empty pool."""
    flat = {f.name: f.name.rsplit("_", 1)[1] for f in dataclasses.fields(CurriculumState)}
    shapes = {"P": (slots,), "PO": (slots, config.ages), "Z": (records.MOST_SKILLS,)}
    kinds = {"alive_P": jnp.bool_, "skill_P": jnp.int32}
    return CurriculumState(
        **{n: jnp.zeros(shapes[a], kinds.get(n, jnp.float32)) for n, a in flat.items()}
    )


def reset(state: CurriculumState, reset_P: jax.Array, skill_P: jax.Array) -> CurriculumState:
    """Forget what is known of slots that got a new environment, of the given skill."""

    def clear(name, values):
        if not name.endswith(("_P", "_PO")):
            return values
        mask = reset_P if values.ndim == 1 else reset_P[:, None]
        return jnp.where(mask, jnp.zeros_like(values), values)

    cleared = {f.name: clear(f.name, getattr(state, f.name)) for f in dataclasses.fields(state)}
    cleared["alive_P"] = state.alive_P | reset_P
    cleared["skill_P"] = jnp.where(reset_P, skill_P, state.skill_P)
    return CurriculumState(**cleared)


def fold(
    state: CurriculumState,
    slots_N: jax.Array,
    returns_NSGA: jax.Array,
    valid_NSGA: jax.Array,
    faults_NSGA: jax.Array,
    regret: credit.Regret,
    config: CurriculumConfig,
) -> CurriculumState:
    """Add one iteration's table of returns.

    Args:
      slots_N: slot of each row of the table, -1 for padding.
      returns_NSGA: returns by environment, seed, play and arm.
      valid_NSGA: True for plays that count.
      faults_NSGA: True for plays that the environment broke.
      regret: paired regret of the rows.
    """
    slots = state.alive_P.shape[0]
    returns_NSGA = jnp.where(valid_NSGA, returns_NSGA.astype(jnp.float32), 0.0)

    def by_slot(values_N):  # -1 would wrap around to the last slot
        place_N = jnp.where(slots_N < 0, slots, slots_N)
        return jnp.zeros(slots).at[place_N].add(values_N.astype(jnp.float32), mode="drop")

    plain, hinted = records.PLAIN, records.HINTED
    plays_P = by_slot(valid_NSGA[..., plain].sum((1, 2)))
    return_P = by_slot(returns_NSGA[..., plain].sum((1, 2)))
    mean_P = return_P / jnp.maximum(plays_P, 1)
    fast_P, slow_P = _track_played(
        state.fast_P, state.slow_P, state.plays_P, plays_P, mean_P, config.fast_rate,
        config.slow_rate,
    )  # fmt: skip
    drawn_P = by_slot(jnp.ones_like(slots_N)) > 0
    age_P = jnp.minimum(state.visits_P.astype(jnp.int32), config.ages - 1)
    at_age_PO = jax.nn.one_hot(age_P, config.ages)
    skills = _fold_skills(state, plays_P, return_P, config)
    paired_N = regret.paired_N.astype(jnp.float32)
    counts_P = jnp.ones(slots)
    if config.regret_from == "first":
        counts_P = (state.pairs_P == 0).astype(jnp.float32)
    return dataclasses.replace(
        state,
        visits_P=state.visits_P + drawn_P,
        stale_P=jnp.where(drawn_P, 0.0, state.stale_P + state.alive_P),
        plays_P=state.plays_P + plays_P,
        return_sum_P=state.return_sum_P + return_P,
        square_sum_P=state.square_sum_P + by_slot((returns_NSGA[..., plain] ** 2).sum((1, 2))),
        fast_P=fast_P,
        slow_P=slow_P,
        hinted_plays_P=state.hinted_plays_P + by_slot(valid_NSGA[..., hinted].sum((1, 2))),
        hinted_sum_P=state.hinted_sum_P + by_slot(returns_NSGA[..., hinted].sum((1, 2))),
        pairs_P=state.pairs_P + counts_P * by_slot(regret.paired_N),
        gap_sum_P=state.gap_sum_P + counts_P * by_slot(paired_N * regret.mean_N),
        gap_error_P=state.gap_error_P + counts_P * by_slot(paired_N * regret.se_N**2),
        faults_P=state.faults_P + by_slot(faults_NSGA.sum((1, 2, 3))),
        age_plays_PO=state.age_plays_PO + at_age_PO * plays_P[:, None],
        age_sum_PO=state.age_sum_PO + at_age_PO * return_P[:, None],
        **skills,
    )


def regret_of(state: CurriculumState) -> credit.Regret:
    """Estimate every slot's regret over its life: mean of its iterations' gaps, and the error."""
    pairs_P = jnp.maximum(state.pairs_P, 1)
    return credit.Regret(
        state.gap_sum_P / pairs_P, jnp.sqrt(state.gap_error_P) / pairs_P, state.pairs_P > 0
    )


def life(state: CurriculumState, regret_P: jax.Array, expected_P: jax.Array) -> credit.Life:
    """Summarise every slot's life for the designer's reward."""
    plays_P = jnp.maximum(state.plays_P, 1)
    mean_P = state.return_sum_P / plays_P
    return credit.Life(
        win_rate_N=mean_P,
        variance_N=jnp.maximum(state.square_sum_P / plays_P - mean_P**2, 0.0),
        regret_N=regret_P,
        offset_mean_NO=state.age_sum_PO / jnp.maximum(state.age_plays_PO, 1),
        offset_plays_NO=state.age_plays_PO,
        expected_N=expected_P,
    )


def draw_scores(state: CurriculumState, regret_P: jax.Array, config: CurriculumConfig) -> jax.Array:
    """Score how much each slot deserves to play next.

    Ranks of learnability p (1 - p) and of regret, mixed, plus staleness. p is (wins + 1) /
    (plays + 2), so that an environment nobody played counts as learnable.

    Args:
      regret_P: shrunken regret.
    Returns:
      scores_P in [0, 1], and -1 for slots without environment.
    """
    rate_P = jnp.clip((state.return_sum_P + 1) / (state.plays_P + 2), 0.0, 1.0)
    learnable_P = _rank(rate_P * (1 - rate_P), state.alive_P)
    merit_P = (1 - config.regret_share) * learnable_P
    merit_P = merit_P + config.regret_share * _rank(regret_P, state.alive_P)
    stale_P = state.stale_P / jnp.maximum(state.stale_P.max(), 1)
    score_P = (1 - config.staleness_share) * merit_P + config.staleness_share * stale_P
    return jnp.where(state.alive_P, score_P, -1.0)


def retire(state: CurriculumState, config: CurriculumConfig) -> jax.Array:
    """Name the slots that should go, as codes of RETIREMENTS, 0 to stay.

    Out of reach is an environment whose hinted plays fail, unless plain ones do better; without
    enough hinted plays, one whose plain plays fail for long.
    """
    played_P = state.plays_P + state.hinted_plays_P
    enough_P = state.plays_P >= config.min_plays
    mastered_P = enough_P & (state.fast_P > config.mastered_win_rate)
    hinted_P = state.hinted_sum_P / jnp.maximum(state.hinted_plays_P, 1)
    failing_P = state.return_sum_P < config.reach_win_rate * state.plays_P
    hopeless_P = (state.hinted_plays_P >= config.min_hinted_plays) & (
        hinted_P < config.reach_win_rate
    )
    unhinted_P = state.hinted_plays_P < config.min_hinted_plays
    hopeless_P |= unhinted_P & (state.plays_P >= config.give_up_plays)
    share_P = state.faults_P / jnp.maximum(state.faults_P + played_P, 1)
    faulty_P = (state.faults_P >= 2) & (share_P > config.max_fault_share)
    code_P = jnp.where(mastered_P, 1, jnp.where(hopeless_P & failing_P, 2, 0))
    return jnp.where(state.alive_P, jnp.where(faulty_P, 3, code_P), 0)


def quota(state: CurriculumState, config: CurriculumConfig) -> jax.Array:
    """Share the next drafts among skills by learning progress |fast - slow|, above a floor.

    Returns:
      quota_Z, sums to 1; equal shares where nothing progresses.
    """
    skills = state.skill_plays_Z.shape[0]
    progress_Z = jnp.abs(state.skill_fast_Z - state.skill_slow_Z)
    total = progress_Z.sum()
    share_Z = jnp.where(total > 1e-6, progress_Z / jnp.maximum(total, 1e-6), 1.0 / skills)
    return config.exploration_floor / skills + (1 - config.exploration_floor) * share_Z


def skill_win_rates(state: CurriculumState) -> jax.Array:
    """Give the agent's current win rate per skill, NaN where nothing was played."""
    return jnp.where(state.skill_plays_Z > 0, state.skill_fast_Z, jnp.nan)


def statistics(state: CurriculumState, config: CurriculumConfig) -> dict[str, jax.Array]:
    """Read out what is known now, for the report; NaN stands where nothing was played."""
    regret = regret_of(state)
    shrunk_P = credit.shrink(regret)
    rate_P = state.return_sum_P / jnp.maximum(state.plays_P, 1)
    hinted_P = state.hinted_sum_P / jnp.maximum(state.hinted_plays_P, 1)
    return {
        "win_rate_P": jnp.where(state.plays_P > 0, rate_P, jnp.nan),
        "hinted_rate_P": jnp.where(state.hinted_plays_P > 0, hinted_P, jnp.nan),
        "fast_P": state.fast_P,
        "slow_P": state.slow_P,
        "plays_P": state.plays_P,
        "visits_P": state.visits_P,
        "faults_P": state.faults_P,
        "raw_regret_P": regret.mean_N,
        "regret_se_P": regret.se_N,
        "regret_P": shrunk_P,
        "draw_score_P": draw_scores(state, shrunk_P, config),
        "retire_P": retire(state, config),
        "quota_Z": quota(state, config),
        "win_rate_Z": skill_win_rates(state),
        "slow_rate_Z": state.skill_slow_Z,
    }


def _fold_skills(state, plays_P, return_P, config):
    skills = state.skill_plays_Z.shape[0]
    plays_Z = jnp.zeros(skills).at[state.skill_P].add(plays_P)
    mean_Z = jnp.zeros(skills).at[state.skill_P].add(return_P) / jnp.maximum(plays_Z, 1)
    before_Z = state.skill_plays_Z
    fast_Z, slow_Z = _track_played(
        state.skill_fast_Z, state.skill_slow_Z, before_Z, plays_Z, mean_Z, config.fast_rate,
        config.slow_rate,
    )  # fmt: skip
    tracker_fast_Z, tracker_slow_Z = _track_played(
        state.tracker_fast_Z, state.tracker_slow_Z, before_Z, plays_Z, mean_Z,
        config.tracker_fast_rate, config.tracker_slow_rate,
    )  # fmt: skip
    return dict(
        skill_plays_Z=before_Z + plays_Z,
        skill_fast_Z=fast_Z,
        skill_slow_Z=slow_Z,
        tracker_fast_Z=tracker_fast_Z,
        tracker_slow_Z=tracker_slow_Z,
    )


def _track_played(fast, slow, plays_before, plays, mean, fast_rate, slow_rate):
    moved = credit.track(fast, slow, plays_before > 0, mean, fast_rate, slow_rate)
    return jnp.where(plays > 0, moved[0], fast), jnp.where(plays > 0, moved[1], slow)


def _rank(values_P, alive_P):
    """Share of the living slots that a slot is at least as good as; equals rank the same."""
    sorted_P = jnp.sort(jnp.where(alive_P, values_P, jnp.inf))
    place_P = jnp.searchsorted(sorted_P, values_P, side="right")
    return place_P / jnp.maximum(alive_P.sum(), 1)
