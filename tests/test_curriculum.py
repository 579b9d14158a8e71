"""Curriculum: statistics of slots and skills, draw, retirement, quota."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax import credit, curriculum, records

CONFIG = curriculum.CurriculumConfig(ages=3)
SKILLS = len(records.SKILLS)


def close(actual, expected, tolerance=1e-6):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=0, atol=tolerance)


def pool(*skills):
    """A pool with one living environment per given skill, and one empty slot."""
    size = len(skills) + 1
    state = curriculum.init(size, CONFIG)
    reset = jnp.arange(size) < len(skills)
    return curriculum.reset(state, reset, jnp.array([*skills, 0]))


def table(rows):
    """{slot: (plain returns, hinted returns, faults)} of one seed to arrays of one size."""
    shape = (4, 1, 64, 2)
    slots = np.full(4, -1)
    returns, valid, faults = np.zeros(shape), np.zeros(shape, bool), np.zeros(shape, bool)
    for n, (slot, (plain, hinted, broken)) in enumerate(rows.items()):
        slots[n] = slot
        for arm, values in enumerate((plain, hinted)):
            for g, value in enumerate(values):
                returns[n, 0, g, arm], valid[n, 0, g, arm] = value, True
        faults[n, 0, :broken, 0] = True
    return slots, returns, valid, faults


@jax.jit
def fold_table(state, slots, returns, valid, faults):
    regret = credit.paired_regret(returns, valid)
    return curriculum.fold(state, slots, returns, valid, faults, regret, CONFIG)


def fold(state, rows):
    return fold_table(state, *table(rows))


def test_fold_counts_by_slot_and_arm():
    state = fold(pool(0, 1), {1: ([1, 0], [1, 1], 0)})
    close(state.plays_P, [0, 2, 0])
    close(state.return_sum_P, [0, 1, 0])
    close(state.square_sum_P, [0, 1, 0])
    close(state.hinted_plays_P, [0, 2, 0])
    close(state.hinted_sum_P, [0, 2, 0])
    close(state.pairs_P, [0, 1, 0])
    close(state.gap_sum_P, [0, 0.5, 0])
    close(state.visits_P, [0, 1, 0])


def test_regret_may_be_that_of_the_first_pair_alone():
    # gaps 1 - 1/2, then 1 - 0: the mean over the life is .75, the first is .5
    config = dataclasses.replace(CONFIG, regret_from="first")
    means = {}
    for name, chosen in (("life", CONFIG), ("first", config)):
        state = pool(0)
        for plain in ([1, 0], [0, 0]):
            slots, returns, valid, faults = table({0: (plain, [1, 1], 0)})
            regret = credit.paired_regret(returns, valid)
            state = curriculum.fold(state, slots, returns, valid, faults, regret, chosen)
        means[name] = float(curriculum.regret_of(state).mean_N[0])
    assert means == pytest.approx({"life": 0.75, "first": 0.5})


def test_padding_rows_touch_no_slot():
    slots, *rest = table({0: ([1, 1], [1, 1], 1)})
    after = fold_table(pool(0, 1), np.full_like(slots, -1), *rest)
    for name in ("plays_P", "visits_P", "faults_P", "gap_sum_P", "hinted_plays_P"):
        close(getattr(after, name), np.zeros(3), 0)


def test_an_environment_drawn_twice_moves_its_mean_once():
    # rows of the same slot: 1, 1 and 0, 0: this iteration's mean is 1/2
    slots, *rest = table({0: ([1, 1], [], 0), 1: ([0, 0], [], 0)})
    state = fold_table(pool(0), np.minimum(slots, 0), *rest)
    close(state.fast_P[0], 0.5)
    close(state.visits_P[0], 1)


def test_means_start_at_the_first_value_and_move_at_their_rates():
    # 1 then 0: fast .5 * 1 + .5 * 0, slow .9 * 1 + .1 * 0
    state = fold(fold(pool(2), {0: ([1, 1], [], 0)}), {0: ([0, 0], [], 0)})
    close([state.fast_P[0], state.slow_P[0]], [0.5, 0.9])
    close([state.skill_fast_Z[2], state.skill_slow_Z[2]], [0.5, 0.9])
    # .02 * 1 + .98 * 0 and .15
    close([state.tracker_fast_Z[2], state.tracker_slow_Z[2]], [0.02, 0.15])


def test_what_was_not_played_keeps_its_means():
    state = fold(fold(pool(0, 1), {0: ([1, 1], [], 0), 1: ([1, 0], [], 0)}), {1: ([0, 0], [], 0)})
    close([state.fast_P[0], state.skill_fast_Z[0]], [1, 1])
    close(state.stale_P, [1, 0, 0])


def test_ages_count_draws_and_the_last_age_takes_the_rest():
    state = pool(0)
    for value in (0, 1, 1, 0):
        state = fold(state, {0: ([value, value], [], 0)})
    close(state.age_plays_PO[0], [2, 2, 4])
    close(state.age_sum_PO[0], [0, 2, 2])


def test_reset_forgets_the_slot_and_nothing_else():
    state = fold(pool(0, 1), {0: ([1, 1], [1, 0], 1), 1: ([1, 0], [1, 1], 0)})
    after = curriculum.reset(state, jnp.array([True, False, False]), jnp.array([4, 0, 0]))
    assert after.skill_P.tolist() == [4, 1, 0]
    for field in dataclasses.fields(state):
        old, new = getattr(state, field.name), getattr(after, field.name)
        if field.name.endswith("_Z"):
            close(new, old, 0)
        elif field.name not in ("alive_P", "skill_P"):
            close(new[0], np.zeros_like(new[0]), 0)
            close(new[1:], old[1:], 0)


def test_lifetime_regret_is_the_mean_of_gaps_with_its_error():
    # gaps .5 and 1, squared errors e1 and e2: mean .75, error sqrt(e1 + e2) / 2
    state = pool(0)
    state = fold(state, {0: ([1, 0], [1, 1], 0)})
    first = float(state.gap_error_P[0])
    state = fold(state, {0: ([0, 0], [1, 1], 0)})
    regret = curriculum.regret_of(state)
    close(regret.mean_N, [0.75, 0])
    second = float(state.gap_error_P[0]) - first
    close(regret.se_N[0], (first + second) ** 0.5 / 2)
    assert regret.paired_N.tolist() == [True, False]


def test_life_summarises_mean_variance_and_ages():
    state = fold(fold(pool(0), {0: ([1, 0], [], 0)}), {0: ([1, 1], [], 0)})
    life = curriculum.life(state, jnp.zeros(2), jnp.zeros(2))
    close(life.win_rate_N, [0.75, 0])
    close(life.variance_N, [0.1875, 0])  # 3/4 - 9/16
    close(life.offset_mean_NO[0], [0.5, 1, 0])


def test_draw_prefers_the_learnable_and_unknown_then_the_stale():
    # win rates (smoothed) .75, .5 and 1/2 for the one nobody played
    state = fold(pool(0, 0, 0), {0: ([1, 1], [], 0), 1: ([1, 0], [], 0)})
    config = dataclasses.replace(CONFIG, regret_share=0.0, staleness_share=0.0)
    close(curriculum.draw_scores(state, jnp.zeros(4), config), [1 / 3, 1, 1, -1])
    config = dataclasses.replace(CONFIG, regret_share=0.0, staleness_share=1.0)
    close(curriculum.draw_scores(state, jnp.zeros(4), config), [0, 0, 1, -1])
    config = dataclasses.replace(CONFIG, regret_share=1.0, staleness_share=0.0)
    scores = curriculum.draw_scores(state, jnp.array([0.2, -0.1, 0.0, 9.0]), config)
    close(scores, [1, 1 / 3, 2 / 3, -1])


def retired(state, config=CONFIG):
    return [curriculum.RETIREMENTS[int(code)] for code in curriculum.retire(state, config)]


def test_mastered_needs_enough_plays():
    state = fold(pool(0, 0), {0: ([1] * 16, [], 0), 1: ([1] * 15, [], 0)})
    assert retired(state) == ["mastered", "", ""]


def test_out_of_reach_fails_even_with_the_hint():
    rows = {
        0: ([0] * 8, [0] * 8, 0),  # fails with the hint
        1: ([0] * 8, [1] + [0] * 7, 0),  # hinted 1/8, above .1
        2: ([1] * 4 + [0] * 4, [0] * 8, 0),  # the hint misleads, plain plays win
        3: ([0] * 8, [0] * 7, 0),  # too few hinted plays
    }
    assert retired(fold(pool(0, 0, 0, 0), rows)) == ["out_of_reach", "", "", "", ""]


def test_without_hints_it_takes_long_to_give_up():
    state = fold(pool(0, 0), {0: ([0] * 64, [], 0), 1: ([0] * 63, [], 0)})
    assert retired(state) == ["out_of_reach", "", ""]


def test_faulty_needs_two_faults_and_a_share():
    rows = {0: ([1, 0], [], 2), 1: ([1, 0], [], 1), 2: ([1, 0] * 4, [], 2)}
    assert retired(fold(pool(0, 0, 0), rows)) == ["faulty", "", "", ""]


def test_an_empty_slot_is_never_retired():
    assert retired(curriculum.init(2, CONFIG)) == ["", ""]


def test_quota_follows_progress_above_a_floor():
    config = dataclasses.replace(CONFIG, exploration_floor=0.3)
    state = fold(pool(2, 4), {0: ([1, 1], [], 0), 1: ([1, 1], [], 0)})
    close(curriculum.quota(state, config), np.full(SKILLS, 1 / SKILLS))  # nothing moved yet
    state = fold(state, {0: ([0, 0], [], 0)})  # skill 2: |.5 - .9|, the others 0
    quota = curriculum.quota(state, config)
    close(quota, np.full(SKILLS, 0.05) + 0.7 * (np.arange(SKILLS) == 2))
    close(quota.sum(), 1)


def test_skill_win_rates_are_unknown_before_play():
    state = fold(pool(2), {0: ([1, 0], [], 0)})
    rates = curriculum.skill_win_rates(state)
    close(rates[2], 0.5)
    assert np.isnan(np.asarray(rates)).sum() == SKILLS - 1


def test_state_passes_through_jit_and_keeps_its_structure():
    state = pool(0, 1)
    after = fold(state, {1: ([1, 0], [1, 1], 0)})
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert [x.dtype for x in jax.tree.leaves(after)] == [x.dtype for x in jax.tree.leaves(state)]


@pytest.mark.parametrize(
    "setting", [{"ages": 0}, {"regret_share": 1.5}, {"slow_rate": 0.9}, {"exploration_floor": -1}]
)
def test_bad_settings_raise(setting):
    with pytest.raises(ValueError, match="curriculum."):
        curriculum.CurriculumConfig(**setting)
