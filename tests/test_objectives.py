"""Objectives: numbers of two established trainers, and the rules for masks and settings."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax import advantages, credit, objectives

FIXTURE = json.loads((pathlib.Path(__file__).parent / "data" / "grpo_fixture.json").read_text())
Config = objectives.ObjectiveConfig
OBJECTIVES = {
    "verl/seq-mean-token-mean": Config(),
    "trl/grpo": Config(),
    "verl/token-mean": Config(aggregation="token_mean"),
    "trl/bnpo": Config(aggregation="token_mean"),
    "trl/dapo": Config(aggregation="token_mean"),
    "verl/seq-mean-token-sum-norm": Config(aggregation="fixed_length", fixed_tokens=6),
    "trl/dr_grpo": Config(aggregation="fixed_length", fixed_tokens=6),
    "verl/seq-mean-token-sum": Config(aggregation="sequence_sum"),
    "verl/token-mean/dualclip1.1": Config(aggregation="token_mean", dual_clip=1.1),
    "trl/grpo/gspo_sequence": Config(ratio="sequence"),
    "trl/cispo": Config(aggregation="token_mean", loss="cispo", cispo_cap=0.28),
    "trl/grpo/beta0.04": Config(kl_coefficient=0.04),
}


def inputs(dtype):
    given = FIXTURE["inputs"]
    arrays = {k: jnp.asarray(given[k], dtype) for k in ("logp", "old", "ref", "sampler", "mask")}
    arrays["advantage"] = jnp.broadcast_to(
        jnp.asarray(FIXTURE["advantages"]["grpo_eps1e-6"], dtype)[:, None], (8, 6)
    )
    arrays["sequences"] = jnp.broadcast_to(jnp.arange(8)[:, None], (8, 6))
    return arrays


def loss(logp, given, config, real=None):
    tokens = given["mask"].sum(1)
    parts = objectives.token_loss(
        logp,
        given["old"],
        given["advantage"],
        given["mask"],
        given["sequences"],
        tokens,
        config,
        reference_BT=given["ref"] if config.kl_coefficient else None,
    )
    real = jnp.ones(len(tokens), bool) if real is None else real
    weight = objectives.token_weights(given["mask"], given["sequences"], tokens, real, config)
    total = parts.policy_BT + config.kl_coefficient * parts.kl_BT
    return (weight * total).sum(), parts


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", request.param == "float64")
    yield request.param
    jax.config.update("jax_enable_x64", before)


def test_every_stored_objective_is_covered():
    stored = {
        f"{key}/{name}" if key in ("verl", "trl") else key
        for key, group in FIXTURE["losses"].items()
        for name in (group if key in ("verl", "trl") else [""])
    }
    assert stored == set(OBJECTIVES)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_loss_and_gradient_match(name, dtype):
    given = inputs(dtype)
    stored = FIXTURE["losses"][name]
    (value, parts), grad = jax.value_and_grad(loss, has_aux=True)(
        given["logp"], given, OBJECTIVES[name]
    )
    tolerance = 1e-6 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(value, stored["loss"], rtol=0, atol=tolerance)
    np.testing.assert_allclose(grad, stored["grad"], rtol=0, atol=tolerance)
    if "clipfrac" in stored:
        share = (parts.clipped_BT * given["mask"]).sum() / given["mask"].sum()
        np.testing.assert_allclose(share, stored["clipfrac"], rtol=0, atol=1e-6)


def test_k3_matches(dtype):
    given = inputs(dtype)
    value = objectives.k3(given["ref"] - given["logp"])
    np.testing.assert_allclose(value, FIXTURE["kl"]["low_var_kl"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("std,key", [("none", "dr_grpo"), ("sample", "grpo_eps1e-6")])
def test_group_advantages_match(std, key):
    returns = jnp.asarray(FIXTURE["inputs"]["rewards"]).reshape(2, 1, 4)
    value = advantages.group_advantage(returns, jnp.ones((2, 1, 4), bool), std=std, epsilon=1e-6)
    np.testing.assert_allclose(value.ravel(), FIXTURE["advantages"][key], rtol=0, atol=1e-6)


def test_leave_one_out_advantages_match():
    returns = jnp.asarray(FIXTURE["inputs"]["rewards"]).reshape(2, 1, 4)
    value = advantages.agent_advantage(
        returns, jnp.ones((2, 1, 4), bool), jnp.ones((2, 1, 4), int),
        credit.CreditConfig(baseline="leave_one_out", std="none"),
    )  # fmt: skip
    np.testing.assert_allclose(value.ravel(), FIXTURE["advantages"]["rloo"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_packing_two_sequences_into_a_row_changes_nothing(name):
    given = inputs("float32")
    packed = {k: v.reshape(4, 12) for k, v in given.items()}
    config = OBJECTIVES[name]
    tokens = given["mask"].sum(1)

    def packed_loss(logp):
        parts = objectives.token_loss(
            logp, packed["old"], packed["advantage"], packed["mask"], packed["sequences"], tokens,
            config, reference_BT=packed["ref"] if config.kl_coefficient else None,
        )  # fmt: skip
        weight = objectives.token_weights(
            packed["mask"], packed["sequences"], tokens, jnp.ones(8, bool), config
        )
        return (weight * (parts.policy_BT + config.kl_coefficient * parts.kl_BT)).sum()

    value, grad = jax.value_and_grad(packed_loss)(packed["logp"])
    expected, expected_grad = jax.value_and_grad(loss, has_aux=True)(given["logp"], given, config)
    np.testing.assert_allclose(value, expected[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(grad.reshape(8, 6), expected_grad, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["trl/grpo", "verl/seq-mean-token-sum", "trl/dr_grpo"])
def test_a_fully_masked_row_keeps_its_place_in_the_denominator(name):
    given = inputs("float32")
    config = OBJECTIVES[name]
    whole, _ = loss(given["logp"], given, config)
    masked = dict(given, mask=given["mask"].at[3].set(0.0))
    (value, _), grad = jax.value_and_grad(loss, has_aux=True)(given["logp"], masked, config)
    # The row's own term leaves, the division by 8 stays.
    alone = dict(given, mask=given["mask"] * (jnp.arange(8) == 3)[:, None])
    term, _ = loss(given["logp"], alone, config)
    np.testing.assert_allclose(value, whole - term, rtol=0, atol=1e-6)
    assert np.all(np.asarray(grad)[3] == 0)


def test_padding_of_the_table_is_no_sequence():
    given = inputs("float32")
    masked = dict(given, mask=given["mask"].at[3].set(0.0))
    real = jnp.arange(8) != 3
    kept, _ = loss(given["logp"], masked, Config())
    left, _ = loss(given["logp"], masked, Config(), real=real)
    np.testing.assert_allclose(left, kept * 8 / 7, rtol=1e-6)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_values_under_the_mask_do_not_matter(name):
    given = inputs("float32")
    expected, _ = loss(given["logp"], given, OBJECTIVES[name])
    holes = {
        k: jnp.where(given["mask"] > 0, v, jnp.nan) if k in ("logp", "old", "ref") else v
        for k, v in given.items()
    }
    real = given["mask"] > 0
    tokens = given["mask"].sum(1)
    parts = objectives.token_loss(
        holes["logp"], holes["old"], given["advantage"], given["mask"], given["sequences"], tokens,
        OBJECTIVES[name], reference_BT=holes["ref"],
    )  # fmt: skip
    weight = objectives.token_weights(
        given["mask"], given["sequences"], tokens, jnp.ones(8, bool), OBJECTIVES[name]
    )
    total = parts.policy_BT + OBJECTIVES[name].kl_coefficient * parts.kl_BT
    np.testing.assert_allclose(jnp.where(real, weight * total, 0.0).sum(), expected, atol=1e-6)
    assert np.isfinite(np.asarray(weight * total)).all()


def test_importance_weight_is_truncated_and_carries_no_gradient():
    # exp(old - sampler): exp(0) = 1, exp(-1) = .367879, exp(3) -> 2
    old, sampler = jnp.array([[0.0, -1.0, 3.0]]), jnp.zeros((1, 3))
    value = objectives.importance_weight(old - sampler, 2.0)
    np.testing.assert_allclose(value, [[1.0, 0.36787944, 2.0]], rtol=1e-6)
    grad = jax.grad(lambda x: objectives.importance_weight(x - sampler, 2.0).sum())
    np.testing.assert_array_equal(grad(old), np.zeros((1, 3)))


def test_importance_of_a_sequence_is_one_weight_for_all_its_tokens():
    # two sequences in a row; gaps .1, .2 (sum .3) and 1, -3 (the masked 9 does not count): -2
    old = jnp.array([[0.1, 0.2, 1.0, -3.0, 9.0]])
    mask = jnp.array([[1.0, 1.0, 1.0, 1.0, 0.0]])
    parts = objectives.token_loss(
        old, old, jnp.ones((1, 5)), mask, jnp.array([[0, 0, 1, 1, 0]]), jnp.array([2, 2]),
        Config(importance="sequence"), sampler_BT=jnp.zeros((1, 5)),
    )  # fmt: skip
    expected = np.exp([0.3, 0.3, -2.0, -2.0])
    np.testing.assert_allclose(parts.importance_BT[0, :4], expected, rtol=1e-6)


@pytest.mark.parametrize("cap", [None, 2.0])
def test_importance_weight_multiplies_the_policy_term(cap):
    given = inputs("float32")
    parts = objectives.token_loss(
        given["logp"],
        given["old"],
        given["advantage"],
        given["mask"],
        given["sequences"],
        given["mask"].sum(1),
        Config(importance_cap=cap),
        sampler_BT=given["sampler"],
    )
    plain = loss(given["logp"], given, Config())[1]
    weight = 1.0 if cap is None else np.clip(np.exp(given["old"] - given["sampler"]), 0, cap)
    mask = np.asarray(given["mask"])
    np.testing.assert_allclose(
        mask * parts.policy_BT, mask * weight * plain.policy_BT, rtol=1e-5, atol=1e-7
    )


def test_first_step_gradient_is_the_policy_gradient():
    # at old = logp every ratio is exactly 1 and d loss / d logp = -A weight
    given = inputs("float32")
    given["old"] = given["logp"]
    (_, parts), grad = jax.value_and_grad(loss, has_aux=True)(given["logp"], given, Config())
    assert np.all(np.asarray(parts.ratio_BT) == 1.0)
    expected = -given["advantage"] * given["mask"] / (8 * given["mask"].sum(1, keepdims=True))
    np.testing.assert_allclose(grad, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "setting",
    [
        {"aggregation": "mean"},
        {"loss": "ppo"},
        {"ratio": "row"},
        {"aggregation": "fixed_length"},
        {"fixed_tokens": 8},
        {"aggregation": "fixed_length", "fixed_tokens": 0},
        {"loss": "cispo"},
        {"cispo_cap": 2.0},
        {"loss": "cispo", "cispo_cap": 2.0, "ratio": "sequence"},
        {"loss": "cispo", "cispo_cap": 2.0, "dual_clip": 3.0},
        {"dual_clip": 1.0},
        {"clip_low": 0.0},
        {"clip_low": 1.5},
        {"clip_high": 0.0},
        {"importance_cap": 0.0},
        {"importance": "row"},
        {"importance": "sequence", "importance_cap": None},
        {"old": "reference"},
        {"old": "sampler"},
        {"kl_coefficient": -0.1},
    ],
)
def test_unknown_and_contradictory_settings_raise(setting):
    with pytest.raises(ValueError, match="objective."):
        Config(**setting)
