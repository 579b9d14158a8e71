"""Advantages: exact cases, who votes in a group, and the balance of the roles."""

import json
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax import advantages, credit, records

CASES = json.loads((pathlib.Path(__file__).parent / "data" / "cases.json").read_text())
TOLERANCE = CASES["tolerance"]


def cases(group):
    return next(g for g in CASES["groups"] if g["id"] == group)["cases"]


def close(actual, expected, tolerance=TOLERANCE):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=0, atol=tolerance)


@pytest.mark.parametrize("case", cases("group_advantage"))
def test_group_advantage_cases(case):
    returns = jnp.array(case["input"], jnp.float32)
    close(advantages.group_advantage(returns, jnp.ones_like(returns, bool)), case["expected"])


def test_ema_baseline_cases():
    case = cases("ema_baseline_advantage")[0]
    baseline = jnp.zeros(())
    for index, returns in enumerate(case["input"]["rollouts"]):
        value, baseline = advantages.ema_baseline_advantage(
            jnp.array(returns, jnp.float32), baseline, index > 0, case["input"]["decay"]
        )
        close(value, case["expected"]["advantages"][index])
        close(baseline, case["expected"]["baseline_after"][index])


@pytest.mark.parametrize("case", cases("role_scale"))
def test_reference_role_scale_cases(case):
    given = {k: jnp.array(v) for k, v in case["input"].items()}
    close(
        advantages.reference_role_scale(given["n_designer"], given["n_agent"], given["interval"]),
        case["expected"],
        tolerance=5e-6,  # float32 at 50: a spacing of 3.8e-6
    )


def test_masked_plays_do_not_vote():
    # valid returns 1, 0, 0: mean 1/3
    returns = jnp.array([1.0, 1.0, 0.0, 0.0])
    valid = jnp.array([True, False, True, True])
    close(advantages.group_advantage(returns, valid, std="none"), [2 / 3, 0.0, -1 / 3, -1 / 3])


def test_masked_plays_do_not_vote_even_with_nan():
    returns = jnp.array([1.0, jnp.nan, 0.0, 0.0])
    valid = jnp.array([True, False, True, True])
    # population deviation of 1, 0, 0 is sqrt(2)/3
    close(advantages.group_advantage(returns, valid), [2**0.5, 0.0, -(2**-0.5), -(2**-0.5)])


@pytest.mark.parametrize("std", credit.STDS)
def test_a_group_of_one_or_none_has_no_advantage(std):
    returns = jnp.array([[0.7, 1.0], [0.3, 0.1]])
    valid = jnp.array([[True, False], [False, False]])
    close(advantages.group_advantage(returns, valid, std=std), np.zeros((2, 2)), 0)


@pytest.mark.parametrize("std", credit.STDS)
def test_equal_returns_give_exactly_zero(std):
    # 0.1 has no exact float: its mean over 7 differs from it in the last bit
    returns = jnp.full((1, 7), 0.1)
    close(advantages.group_advantage(returns, jnp.ones((1, 7), bool), std=std), np.zeros((1, 7)), 0)


def test_sample_deviation_divides_by_one_less():
    # 1, 0: sample variance 0.5, deviation 0.7071
    value = advantages.group_advantage(jnp.array([1.0, 0.0]), jnp.ones(2, bool), std="sample")
    close(value, [0.70710678, -0.70710678])


def test_groups_do_not_touch_each_other():
    rng = np.random.default_rng(0)
    returns = jnp.asarray(rng.integers(0, 2, (3, 2, 5)), jnp.float32)
    valid = jnp.asarray(rng.random((3, 2, 5)) < 0.8)
    before = advantages.group_advantage(returns, valid)
    after = advantages.group_advantage(returns.at[1, 0].set(jnp.array([1, 0, 1, 0, 1.0])), valid)
    changed = np.abs(np.asarray(before - after)).max(-1) > 0
    assert changed.tolist() == [[False, False], [True, False], [False, False]]


@pytest.mark.parametrize("scale", [0.25, 3.0])
def test_standardised_advantage_ignores_scale_and_shift(scale):
    returns = jnp.array([0.0, 1.0, 1.0, 0.0, 1.0])
    valid = jnp.ones(5, bool)
    close(
        advantages.group_advantage(scale * returns + 2.0, valid),
        advantages.group_advantage(returns, valid),
        3e-6,
    )


def test_roles_get_the_same_root_mean_square():
    advantage = jnp.array([0.1, -0.1, 1.0, -1.0, 0.0])
    tokens = jnp.array([100, 50, 10, 10, 20])
    role = jnp.array([records.DESIGNER] * 2 + [records.AGENT] * 3)
    config = credit.CreditConfig(designer_weight=2.0)
    factor = advantages.role_factors(advantage, tokens, role, config)
    rms = advantages.rms_by_role(factor[role] * advantage, tokens, role)
    # the agent's: sqrt(20 / 40)
    close(rms, [2 * 0.5**0.5, 0.5**0.5])


def test_a_role_without_signal_changes_nothing():
    advantage = jnp.array([0.0, 0.0, 1.0, -1.0])
    role = jnp.array([0, 0, 1, 1])
    close(advantages.role_factors(advantage, jnp.ones(4), role, credit.CreditConfig()), [1, 1], 0)
    close(
        advantages.role_factors(advantage, jnp.ones(4), 1 - role, credit.CreditConfig()), [1, 1], 0
    )


def test_reference_scale_counts_trained_sequences():
    # 1 designer and 3 agent sequences trained, k = 4: 12
    config = credit.CreditConfig(role_scale="reference", interval=4)
    factor = advantages.role_factors(
        jnp.ones(6), jnp.array([5, 0, 1, 1, 1, 0]), jnp.array([0, 0, 1, 1, 1, 1]), config
    )
    close(factor, [12.0, 1.0])


# ---------------------------------------------------------------- baselines and over-length


def agent(returns, valid=None, lengths=None, **setting):
    returns = jnp.asarray(returns, jnp.float32)
    valid = jnp.ones(returns.shape, bool) if valid is None else jnp.asarray(valid)
    lengths = jnp.ones(returns.shape, int) if lengths is None else jnp.asarray(lengths)
    return advantages.agent_advantage(returns, valid, lengths, credit.CreditConfig(**setting))


def test_leave_one_out_subtracts_the_mean_of_the_other_valid_plays():
    # others of 1: (0 + 0)/2 = 0; of each 0: (1 + 0)/2 = .5; a group of one has nobody to ask
    value = agent(
        [[1.0, 9.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]],
        [[True, False, True, True], [True, False, False, False]],
        baseline="leave_one_out",
        std="none",
    )
    close(value, [[1.0, 0.0, -0.5, -0.5], [0.0, 0.0, 0.0, 0.0]])


def test_batch_baseline_compares_all_valid_plays():
    # 1, 1, 1, 0: mean 3/4, population deviation sqrt(3)/4
    value = agent([[1.0, 1.0], [1.0, 0.0], [7.0, 7.0]], [[True] * 2, [True] * 2, [False] * 2],
                  baseline="batch")  # fmt: skip
    close(value, [[3**-0.5, 3**-0.5], [3**-0.5, -(3**0.5)], [0.0, 0.0]])


def test_group_then_batch_centres_by_group_and_divides_by_the_batch():
    # centred 0, 0, .5, -.5; population deviation over four: sqrt(1/8)
    value = agent([[1.0, 1.0], [1.0, 0.0]], baseline="group_then_batch")
    close(value, [[0.0, 0.0], [2**0.5, -(2**0.5)]])


def test_long_replies_are_charged_by_their_tokens():
    # limit 10, ramp 4: nothing up to 6, half at 8, all from 10 on
    value = advantages.overlong_charge(jnp.array([0, 6, 8, 10, 99]), 10, 4)
    close(value, [0.0, 0.0, 0.5, 1.0, 1.0])
    value = agent([1.0, 1.0], lengths=[6, 10], overlong="soft", max_reply_tokens=10,
                  overlong_ramp_tokens=4, std="none")  # fmt: skip
    close(value, [0.5, -0.5])


def test_masked_long_replies_do_not_vote():
    value = agent([1.0, 0.0, 0.0], lengths=[5, 5, 11], overlong="mask", max_reply_tokens=10,
                  std="none")  # fmt: skip
    close(value, [0.5, -0.5, 0.0])


@pytest.mark.parametrize(
    "setting",
    [
        {"baseline": "value"},
        {"baseline": "leave_one_out"},
        {"baseline": "batch", "std": "none"},
        {"overlong": "characters"},
        {"overlong": "soft", "max_reply_tokens": 10},
        {"overlong": "mask"},
        {"max_reply_tokens": 10},
        {"overlong": "soft", "max_reply_tokens": 10, "overlong_ramp_tokens": 11},
    ],
)
def test_unknown_and_contradictory_settings_raise(setting):
    with pytest.raises(ValueError, match="credit."):
        credit.CreditConfig(**setting)
