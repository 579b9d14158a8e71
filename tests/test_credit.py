"""Credit: the exact cases, and properties of the estimators."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax import credit, records

CASES = json.loads((pathlib.Path(__file__).parent / "data" / "cases.json").read_text())
TOLERANCE = CASES["tolerance"]


def cases(group):
    return next(g for g in CASES["groups"] if g["id"] == group)["cases"]


def close(actual, expected, tolerance=TOLERANCE):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=0, atol=tolerance)


def life(returns_by_offset, r_hint=None, expected=0.0):
    """Build the life of environments of cases.json; regret uses the first offset only."""
    ages = max(len(offsets) for offsets in returns_by_offset)
    mean_NO = np.zeros((len(returns_by_offset), ages), np.float32)
    plays_NO = np.zeros_like(mean_NO)
    for n, offsets in enumerate(returns_by_offset):
        for o, values in enumerate(offsets):
            mean_NO[n, o], plays_NO[n, o] = np.mean(values), len(values)
    flat = [np.concatenate([np.asarray(v, float) for v in r]) for r in returns_by_offset]
    hint_N = np.zeros(len(flat)) if r_hint is None else np.asarray(r_hint, float)
    return credit.Life(
        win_rate_N=jnp.array([f.mean() for f in flat], jnp.float32),
        variance_N=jnp.array([f.var() for f in flat], jnp.float32),
        regret_N=jnp.asarray(hint_N - mean_NO[:, 0], jnp.float32),
        offset_mean_NO=jnp.asarray(mean_NO),
        offset_plays_NO=jnp.asarray(plays_NO),
        expected_N=jnp.full(len(flat), expected, jnp.float32),
    )


# ---------------------------------------------------------------- exact cases


@pytest.mark.parametrize("case", cases("episode_return"))
def test_episode_return_cases(case):
    rewards = case["input"]["step_rewards"]
    padded = jnp.array([rewards + [9.0] * (4 - len(rewards))])
    value = credit.episode_return(
        padded, jnp.array([len(rewards)]), jnp.array([case["input"]["terminated"]])
    )
    close(value[0], case["expected"])


@pytest.mark.parametrize("case", cases("plateau"))
def test_plateau_cases(case):
    given = case["input"]
    value = credit.plateau(
        jnp.array([given["win_rate"]], jnp.float32), given["lo"], given["hi"], given["ramp"]
    )
    close(value[0], case["expected"])


@pytest.mark.parametrize("case", cases("designer_reward_blend"))
def test_blend_cases(case):
    params, environments = case["input"]["params"], case["input"]["environments"]
    ids = [e["id"] for e in environments]
    config = credit.CreditConfig(
        regret_weight=params["regret_weight"],
        progress_weight=params["micro_lp_weight"],
        plateau_weight=params["plateau_weight"],
        frontier_weight=params["frontier_weight"],
        regret_scale=params["regret_scale"],
        progress_scale=params["micro_lp_scale"],
        frontier_scale=params["frontier_scale"],
        regret_floor=params["regret_floor"],
        plateau_low=params["plateau_lo"],
        plateau_high=params["plateau_hi"],
        plateau_ramp=params["plateau_ramp"],
    )
    lives = life(
        [e["returns_by_offset"] for e in environments], [e["r_hint"] for e in environments]
    )
    expected = case["expected"]
    parts = {
        "regret": lives.regret_N,
        "win_rate": lives.win_rate_N,
        "plateau": credit.solve_rate(lives, config),
        "micro_lp": credit.progress_slope(lives),
        "frontier_penalty": credit.frontier_penalty(lives.win_rate_N),
        "blend": credit.designer_raw(lives, config),
    }
    for name, values in parts.items():
        close(values, [expected["components"][i][name] for i in ids])
    raw = credit.designer_raw(lives, config) - jnp.array(
        [e.get("penalty", 0.0) for e in environments]
    )
    close(raw, [expected["raw"][i] for i in ids])
    skills = {"logic": 0, "math": 1}
    reward = credit.centre_by_skill(
        raw, jnp.array([skills[e["skill"]] for e in environments]), jnp.ones(6, bool), 2
    )
    close(params["scale"] * reward, [expected["reward"][i] for i in ids], tolerance=5e-6)


def test_delayed_regret_cases():
    case = cases("designer_reward_regret_delayed")[0]
    environments = case["input"]["environments"]
    lives = life([[e["returns"]] for e in environments], [e["r_hint"] or 0 for e in environments])
    raw = credit.reference_regret_reward(
        lives.regret_N,
        jnp.array([e.get("step_timeout", False) for e in environments]),
        jnp.ones(4, bool),
    )
    close(raw, case["expected"]["raw"])
    reward = credit.centre_by_skill(raw, jnp.zeros(4, int), jnp.ones(4, bool), 1)
    close(case["input"]["scale"] * reward, case["expected"]["reward"])


def test_immediate_regret_cases():
    case = cases("designer_reward_regret_immediate")[0]
    environments = case["input"]["environments"]
    raw = credit.reference_regret_reward(
        jnp.array([e["regret"] for e in environments]),
        jnp.array([e.get("step_timeout", False) for e in environments]),
        jnp.array([e.get("turn1_valid", True) for e in environments]),
    )
    close(raw, case["expected"]["raw"])
    reward = credit.centre_by_skill(raw, jnp.zeros(4, int), jnp.ones(4, bool), 1)
    close(case["input"]["scale"] * reward, case["expected"]["reward"])


def test_learning_potential_tracker_cases():
    case = cases("learning_potential_tracker")[0]
    given, expected = case["input"], case["expected"]
    scale = 1 / (2 * (given["g_fast"] - given["g_slow"]))
    close(scale, expected["scale"])
    fast = slow = jnp.zeros(1)
    for index, value in enumerate(given["updates"]):
        fast, slow = credit.track(
            fast, slow, jnp.array([index > 0]), jnp.array([value]), given["g_fast"], given["g_slow"]
        )
        close(fast[0], expected["mu_fast"][index])
        close(slow[0], expected["mu_slow"][index])
        close((fast - slow)[0] * scale, expected["signed_scaled_gap"][index])


def test_learning_potential_reward_cases():
    case = cases("learning_potential_reward")[0]
    given, expected = case["input"], case["expected"]
    lives = life(
        [[[value]] for value in given["mean_return_by_environment"]],
        expected=given["mu_slow_before"],
    )
    raw = credit.designer_raw(lives, credit.CreditConfig(variant="learning_potential"))
    close(raw, expected["raw"])
    close(
        given["scale"] * credit.centre_by_skill(raw, jnp.zeros(3, int), jnp.ones(3, bool), 1),
        expected["reward"],
    )
    mean = jnp.array([np.mean(given["skill_returns"])], jnp.float32)
    _, slow = credit.track(
        jnp.zeros(1),
        jnp.array([given["mu_slow_before"]]),
        jnp.array([True]),
        mean,
        0.98,
        given["g_slow"],
    )
    close(slow[0], expected["mu_slow_after"])


@pytest.mark.parametrize("case", cases("variance_bonus"))
def test_variance_bonus_cases(case):
    lives = life([[case["input"]]])
    close(credit.designer_raw(lives, credit.CreditConfig(variant="variance"))[0], case["expected"])


# ---------------------------------------------------------------- regret


def table(plain, hinted):
    """[seed][play] lists of both arms, None where there is no play, to one environment."""
    plays = max(len(group) for group in plain + hinted)
    returns = np.zeros((1, len(plain), plays, 2), np.float32)
    valid = np.zeros(returns.shape, bool)
    for arm, groups in enumerate((plain, hinted)):
        for s, group in enumerate(groups):
            for g, value in enumerate(group):
                if value is not None:
                    returns[0, s, g, arm], valid[0, s, g, arm] = value, True
    return jnp.asarray(returns), jnp.asarray(valid)


def test_regret_is_the_mean_of_seed_gaps():
    # seed 0: hinted 1, plain 1/2; seed 1: hinted 1/2, plain 0 (the None does not count)
    regret = credit.paired_regret(*table([[1, 0], [0, 0]], [[1, 1], [1, 0, None]]))
    close(regret.mean_N, [0.5])


def test_regret_uses_only_seeds_with_both_arms():
    # seed 1 has no hinted play: its zeros must not pull the plain arm down
    regret = credit.paired_regret(*table([[1, 1], [0, 0]], [[1, 1], [None, None]]))
    close(regret.mean_N, [0.0])
    assert bool(regret.paired_N[0])


def test_regret_without_pairs_is_zero_and_says_so():
    regret = credit.paired_regret(*table([[1, 0]], [[None, None]]))
    assert not bool(regret.paired_N[0])
    close([regret.mean_N[0], regret.se_N[0]], [0, 0], 0)


def test_regret_error_by_hand():
    # One seed, plain 1, 0 (squares 0.5, freedom 1), hinted 1, 1 (0, 1). v0 = (.5 + .25) / (2 + 1)
    # = .25; plain (.5 + 1) / 5 = .3, hinted (0 + 1) / 5 = .2; se^2 = .3/2 + .2/2 = .25
    regret = credit.paired_regret(*table([[1, 0]], [[1, 1]]))
    close(regret.se_N, [0.5])


def simulate(rate, environments, seeds, plain, hinted, trials, seed=0):
    """Returns of environments whose hint changes nothing: [trials, N, S, G, A] and validity."""
    rng = np.random.default_rng(seed)
    plays = max(plain, hinted)
    shape = (trials, environments, seeds, plays, 2)
    returns = (rng.random(shape) < rate).astype(np.float32)
    valid = np.zeros(shape, bool)
    valid[..., :plain, records.PLAIN] = True
    valid[..., :hinted, records.HINTED] = True
    return jnp.asarray(returns), jnp.asarray(valid)


@pytest.mark.parametrize("rate", [0.5, 0.2])
@pytest.mark.parametrize("seeds,plays", [(2, 4), (3, 8), (4, 16)])
def test_regret_error_is_calibrated(rate, seeds, plays):
    returns, valid = simulate(rate, 16, seeds, plays, plays, trials=300)
    regret = jax.vmap(credit.paired_regret)(returns, valid)
    ratio = float(jnp.mean(regret.se_N**2) / jnp.var(regret.mean_N))
    assert 0.93 < ratio < 1.07, ratio
    # stable: the error of one environment is within a third of the true one in nearly all cases
    spread = np.asarray(regret.se_N) / float(jnp.std(regret.mean_N))
    assert np.mean((spread > 0.67) & (spread < 1.33)) > 0.95


def test_zero_regret_bias_of_the_shrunken_estimate():
    """State the bias: p = 0.5, no true regret, 16 plain and 8 hinted plays over 2 seeds.

    Measured with 24 environments: raw 0.36, shrunken 0.06 (8: 0.09, 64: 0.04).
    """
    returns, valid = simulate(0.5, 24, 2, 8, 4, trials=500)
    regret = jax.vmap(credit.paired_regret)(returns, valid)
    config = credit.CreditConfig()
    raw = float(credit.normalised_regret(regret.mean_N, config).mean())
    shrunk = float(credit.normalised_regret(jax.vmap(credit.shrink)(regret), config).mean())
    assert abs(raw - 0.36) < 0.01, raw
    assert shrunk < 0.07, shrunk


def test_shrinking_keeps_a_clear_signal():
    # Regrets .8 and 0, errors .1: tau^2 = .32 - .01 = .31, factor .31 / .32
    regret = credit.Regret(
        jnp.array([0.8, 0.0, 9.0]), jnp.array([0.1, 0.1, 0.0]), jnp.array([True, True, False])
    )
    close(credit.shrink(regret), [0.8 * 0.31 / 0.32, 0.0, 0.0])


def test_a_pool_of_equal_regrets_keeps_them():
    # 3 times .3, errors .1: tau^2 = .09 - .01 = .08, factor .08 / .09. Nothing is drawn to the mean
    regret = credit.Regret(jnp.full(3, 0.3), jnp.full(3, 0.1), jnp.full(3, True))
    close(credit.shrink(regret), [0.3 * 8 / 9] * 3)


def test_shrinking_one_environment_or_none_gives_zero():
    one = credit.Regret(jnp.array([0.8]), jnp.array([0.1]), jnp.array([True]))
    none = credit.Regret(jnp.array([0.8]), jnp.array([0.0]), jnp.array([False]))
    close([credit.shrink(one)[0], credit.shrink(none)[0]], [0, 0], 0)


# ---------------------------------------------------------------- the designer


def test_micro_progress_compares_halves():
    # ages .1 .2 .9: the middle one belongs to neither half
    lives = life([[[0.1], [0.2], [0.9]], [[0.9], [0.1]], [[0.5]]])
    close(
        credit.designer_raw(lives, credit.CreditConfig(variant="micro_progress")), [0.8, 0.0, 0.0]
    )


def test_progress_skips_ages_without_plays():
    # ages 0 and 2 only: the line through (0, 0) and (2, .5) has slope .25, times 1 = ages - 1
    lives = life([[[0.0], [0.0], [0.5]]])
    lives = lives._replace(offset_plays_NO=jnp.array([[1.0, 0.0, 1.0]]))
    close(credit.progress_slope(lives), [0.25])
    close(credit.late_minus_early(lives), [0.5])


@pytest.mark.parametrize(
    "variant,expected",
    [
        ("blend", [0.0, 0.6 * 0.2, 0.6, 0.0]),
        ("solve_rate", [0.0, 0.2, 1.0, 0.0]),
        ("frontier", [0.0, 0.64, 1.0, 0.0]),
        ("regret", [0.0, 0.0, 0.0, 0.0]),
        ("learning_potential", [0.5, 0.3, 0.0, 0.5]),
        ("micro_progress", [0.0, 0.0, 0.0, 0.0]),
        ("variance", [0.043937, 0.666977, 1.0, 0.043937]),
    ],
)
def test_variants_by_win_rate(variant, expected):
    # win rates 0, 1/5, 1/2, 1 of binary returns, no hint; the skill's slow mean is 1/2.
    # variance .16: exp(-(.09^2) / .02) = exp(-.405) = .666977
    lives = life(
        [[[0] * 10], [[1, 1] + [0] * 8], [[1] * 5 + [0] * 5], [[1] * 10]],
        r_hint=[0, 0.2, 0.5, 1],
        expected=0.5,
    )
    close(credit.designer_raw(lives, credit.CreditConfig(variant=variant)), expected)


def test_a_fault_leaves_at_most_zero():
    # 1 fault in 4 plays costs 1 + .5/4; all faulty 1.5
    config = credit.CreditConfig()
    penalty = credit.fault_penalty(jnp.array([0, 1, 4]), jnp.array([4, 3, 0]), config)
    close(penalty, [0.0, 1.125, 1.5])
    assert config.regret_weight + config.plateau_weight <= float(penalty[1])


def test_centring_is_per_skill_and_global_for_a_lonely_draft():
    # skill 0: 1, 0 -> mean .5; skill 1 alone: global mean of 1, 0, .2 is .4; the last is not valid
    raw = jnp.array([1.0, 0.0, 0.2, 7.0])
    value = credit.centre_by_skill(
        raw, jnp.array([0, 0, 1, 1]), jnp.array([True, True, True, False]), 3
    )
    close(value, [0.5, -0.5, -0.2, 0.0])


def test_a_lonely_draft_earns_nothing_where_its_own_mean_is_taken():
    raw, skill = jnp.array([1.0, 0.0, 0.2]), jnp.array([0, 0, 1])
    value = credit.centre_by_skill(raw, skill, jnp.full(3, True), 3, lonely="own")
    close(value, [0.5, -0.5, 0.0])


# Variance of 1, 0 is 1/4: bonus 1; of .5, .5 it is 0: exp(-1/16 / .02) = 0.043937. Distances from
# an expected .5 are 0.
def test_learning_potential_may_add_the_variance_bonus():
    config = credit.CreditConfig(variant="learning_potential", variance_weight=0.5)
    raw = credit.designer_raw(life([[[1, 0]], [[0.5, 0.5]]], expected=0.5), config)
    close(raw, [0.5, 0.5 * 0.043937])


@pytest.mark.parametrize(
    "setting",
    [{"lonely": "x"}, {"std": "x"}, {"variant": "x"}, {"plateau_low": 0.7}, {"regret_scale": 0.0}],
)
def test_bad_settings_raise(setting):
    with pytest.raises(ValueError, match="credit."):
        credit.CreditConfig(**setting)
