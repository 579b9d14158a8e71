"""The jitted update: masks, ratios, credit over a life, what it reports, and that it learns."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_update as small

from spade_jax import batch, credit, learn, ledger, objectives, optimizer, records
from spade_jax.policy import heads, transformer


@pytest.fixture(scope="module")
def base():
    state, report = small.step(
        small.start(), small.make(*small.iteration(), fresh={0: 0, 1: 0, 2: 0})
    )
    return jax.device_get(state), report


# ---------------------------------------------------------------- what the report says


def test_every_ratio_is_one_at_the_only_step(base):
    report = base[1]
    assert report["max_ratio_off_2"].tolist() == [0, 0]
    assert report["ratio_2"].tolist() == [1, 1]
    assert report["clipped_2"].tolist() == [0, 0]


def test_report_counts_what_was_trained(base):
    report = base[1]
    assert report["trained_2"].tolist() == [4, 24]
    assert report["tokens_2"][records.DESIGNER] == 9 + 6 + 3 + 8
    assert report["unpaid_drafts"] == 0 and report["skipped_steps"] == 0
    assert all(np.asarray(value).dtype == np.float32 for value in report.values())


@pytest.mark.parametrize("drop", [False, True])
def test_the_ledger_tells_which_drafts_were_not_paid(drop):
    plays, credits = small.iteration()
    lost = [dataclasses.replace(e, fault="infra" if e.environment == 0 else "") for e in plays]
    rows = dataclasses.replace(small.ROWS, drop_flat_groups=drop)
    for played, unpaid in ((plays, 0), (lost, 1)):
        made = small.make(played, credits, rows=rows, fresh={0: 0, 1: 0, 2: 0})
        _, report = small.step(small.start(), made)
        assert report["unpaid_drafts"] == unpaid
        assert ledger.check_update(made.counts, report)["unpaid"] == unpaid


def test_roles_pull_equally_hard(base):
    designer, agent = base[1]["advantage_rms_2"]
    assert agent > 0.1
    np.testing.assert_allclose(designer, agent, rtol=1e-5)


def test_advantages_in_the_report_are_the_plain_groups(base):
    plays, _ = small.iteration()
    returns = np.zeros((3, 2, 4))
    for e in plays:
        if e.arm == records.PLAIN:
            returns[e.environment, e.seed_index, e.play] = e.value
    spread = returns.std(-1, keepdims=True)
    expected = (returns - returns.mean(-1, keepdims=True)) / (spread + 1e-8)
    np.testing.assert_allclose(base[1]["agent_advantage_NSG"], expected, atol=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logp_gap_is_zero_for_logps_of_the_sampled_distribution(temperature):
    """Sampler log-probs are log_softmax(logits / temperature) at each reply token, end included."""
    rng = np.random.default_rng(3)
    state = small.start()
    prompt, ids = (1, 2, 3), rng.integers(0, 16, 6)
    tokens = jnp.array([[*prompt, *ids]])
    hidden = transformer.forward(
        state.params, small.MODEL, tokens, jnp.arange(9)[None], jnp.ones((1, 9), int)
    )
    scores = heads.logits(state.params, small.MODEL, hidden, jnp.array([records.AGENT]))
    logps = jax.nn.log_softmax(scores / temperature)[0, jnp.arange(2, 8), ids]
    plays = [
        small.episode(0, 0, g, records.PLAIN, small.reply(ids, logps), g % 2, prompt)
        for g in range(4)
    ]
    made = batch.build(
        plays, [], slots=(0, 1, 2), fresh={}, pool_slots=small.SLOTS, shape=small.SHAPE,
        config=small.ROWS, mesh=small.mesh_of(), agent_temperature=temperature,
    )  # fmt: skip
    _, report = small.step(state, made)
    assert report["tokens_2"].tolist() == [0, 24]
    assert report["max_logp_gap_2"][records.AGENT] < 1e-5
    np.testing.assert_allclose(report["importance_2"][records.AGENT], 1.0, atol=1e-5)
    np.testing.assert_allclose(report["surprise_2"][records.AGENT], -logps.mean(), rtol=1e-5)


def test_a_gradient_that_is_not_finite_moves_nothing():
    made = small.make(*small.iteration())
    broken = dataclasses.replace(made.batch, logps_BT=made.batch.logps_BT * jnp.nan)
    before = jax.device_get(small.start())
    state, report = small.step(small.start(), broken)
    assert report["skipped_steps"] == 1 and report["update_norm"] == 0
    small.same(state.params, before.params, 0)
    small.same(state.opt_state, before.opt_state, 0)
    # the plays are counted all the same
    assert float(state.curriculum.plays_P.sum()) == 24


def test_norms_and_biases_do_not_decay():
    """Without a gradient only the decay moves a parameter."""
    model = dataclasses.replace(small.MODEL, attention_bias=True, qk_norm=True)
    params = jax.tree.map(jnp.ones_like, transformer.init(model, jax.random.key(0)))
    adam = optimizer.build(dataclasses.replace(small.CONFIG, weight_decay=0.1))
    vectors = {"scale", "q_bias_HC", "k_bias_KC", "v_bias_KC"}
    zero = jax.tree.map(jnp.zeros_like, params)
    updates, _ = adam.update(zero, adam.init(params), params)
    names = set()
    for path, update in jax.tree_util.tree_leaves_with_path(updates):
        decays = bool((update != 0).all())
        assert decays == (path[-1].key not in vectors), path
        names.add(path[-1].key)
    assert names > vectors


def test_several_steps_start_at_ratio_one_and_move_away():
    config = dataclasses.replace(
        small.CONFIG,
        minibatches=2,
        epochs=2,
        objective=objectives.ObjectiveConfig(kl_coefficient=0.1),
    )
    state, report = small.step(small.start(config), small.make(*small.iteration()), config)
    assert report["first_ratio_off_2"].tolist() == [0, 0]
    assert report["max_ratio_off_2"].min() > 1e-4
    assert int(state.step) == 4
    assert report["kl_2"].min() > 0  # later steps have left the starting policy
    assert (
        "kl_2" not in small.step(small.start(), small.make(*small.iteration()))[1]
    )  # nothing to differ from
    assert report["tokens_2"][0] == 2 * 26  # two epochs
    np.testing.assert_allclose(
        jax.tree.leaves(state.reference)[0],
        jax.tree.leaves(transformer.init(small.MODEL, jax.random.key(0)))[0],
    )


def test_old_log_probabilities_can_be_the_sampler_s():
    given = objectives.ObjectiveConfig(old="sampler", importance_cap=None)
    _, report = small.step(
        small.start(),
        small.make(*small.iteration()),
        dataclasses.replace(small.CONFIG, objective=given),
    )
    # the made-up log-probabilities of the replies are not the model's: the ratio starts off 1
    assert report["first_ratio_off_2"].min() > 0.1
    assert report["importance_2"].tolist() == [1, 1]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_moments_are_kept_in_their_dtype(dtype):
    config = dataclasses.replace(small.CONFIG, state_dtype=dtype)
    params = {"w": jnp.ones((4, 4), jnp.bfloat16)}
    adam = optimizer.build(config)
    updates, state = adam.update({"w": jnp.full((4, 4), 0.5)}, adam.init(params), params)
    moments = [leaf for leaf in jax.tree.leaves(state) if leaf.ndim == 2]
    assert [m.dtype for m in moments] == [jnp.dtype(dtype)] * 2
    # the gradient of norm 2 is clipped to 1: .25; both moments, unbiased, give .25 / (.25 + eps)
    np.testing.assert_allclose(np.asarray(updates["w"], np.float32), 0.25 / 0.26 + 0.1, rtol=1e-2)


def test_moments_cannot_wait_in_host_memory_where_nothing_moves_them():
    config = dataclasses.replace(small.CONFIG, state_memory="pinned_host")
    with pytest.raises(ValueError, match="state_memory"):
        small.start(config)


# ---------------------------------------------------------------- that it learns


def test_both_roles_learn_a_bandit():
    """Eight prompts, one right token each, and one token that the designer must write."""
    shape = batch.TableShape(environments=3, seeds=2, plays=16, drafts=16)
    config = dataclasses.replace(small.CONFIG, learning_rate=1e-2, eps=1e-8, weight_decay=0.0)
    rows = batch.BatchConfig(row_tokens=16, rows_multiple=32, rows=(32,))
    state, rng = small.start(config), np.random.default_rng(0)
    prompts = {(n, s): (1, 2 + 2 * n + s) for n in range(3) for s in range(2)}

    @jax.jit
    def distribution(params, tokens_BT, roles_B):
        places = jnp.broadcast_to(jnp.arange(2), tokens_BT.shape)
        hidden = transformer.forward(params, small.MODEL, tokens_BT, places, jnp.ones_like(places))
        return jax.nn.log_softmax(heads.logits(params, small.MODEL, hidden, roles_B)[:, -1])

    def write(prompt_rows, roles):
        logps = np.asarray(
            distribution(state.params, jnp.array(prompt_rows), jnp.array(roles)), np.float64
        )
        chances = np.exp(logps) / np.exp(logps).sum(-1, keepdims=True)
        ids = [int(rng.choice(16, p=p)) for p in chances]
        return [small.reply([i], [logps[row, i]]) for row, i in enumerate(ids)]

    keys = [(n, s, g) for (n, s) in prompts for g in range(16)]
    history = []
    for _ in range(60):
        replies = write(
            [prompts[n, s] for n, s, _ in keys] + [(1, 15)] * 16,
            [records.AGENT] * len(keys) + [records.DESIGNER] * 16,
        )
        answers, written = replies[: len(keys)], replies[len(keys) :]
        right = [float(a.ids[0] == 2 * n + s) for (n, s, _), a in zip(keys, answers, strict=True)]
        plays = [
            small.episode(n, s, g, records.PLAIN, a, value, prompts[n, s])
            for (n, s, g), a, value in zip(keys, answers, right, strict=True)
        ]
        wanted = [float(w.ids[0] == 9) for w in written]
        credits = [
            batch.DraftCredit(draft=small.draft(i, w, (1, 15)), fixed=value - 1.0)
            for i, (w, value) in enumerate(zip(written, wanted, strict=True))
        ]
        state, report = small.step(
            state, small.make(plays, credits, rows=rows, shape=shape), config
        )
        assert report["max_logp_gap_2"].max() < 1e-4
        history.append((np.mean(wanted), np.mean(right)))
    first, last = np.mean(history[:3], 0), np.mean(history[-3:], 0)
    assert first.max() < 0.3, first
    assert last.min() > 0.9, (first, last)


# ---------------------------------------------------------------- settings


def test_rows_that_do_not_divide_raise():
    config = dataclasses.replace(small.CONFIG, microbatches=3)
    with pytest.raises(ValueError, match="rows_multiple"):
        learn.check_rows(config, small.ROWS, small.mesh_of())
    with pytest.raises(
        ValueError, match="rows_multiple=4 must be a multiple of .* = 8; set it to 8"
    ):
        learn.check_rows(small.CONFIG, batch.BatchConfig(rows_multiple=4), small.mesh_of(fsdp=8))
    with pytest.raises(ValueError, match="do not divide"):
        small.step(small.start(config), small.make(*small.iteration()), config)
    learn.check_rows(small.CONFIG, small.ROWS, small.mesh_of())


def test_flat_groups_cannot_be_dropped_where_other_terms_need_them():
    config = dataclasses.replace(
        small.CONFIG, objective=objectives.ObjectiveConfig(entropy_coefficient=0.01)
    )
    with pytest.raises(ValueError, match="drop_flat_groups"):
        learn.check_rows(
            config, dataclasses.replace(small.ROWS, drop_flat_groups=True), small.mesh_of()
        )


@pytest.mark.parametrize(
    "setting",
    [{"minibatches": 0}, {"microbatches": 0}, {"learning_rate": 0.0}, {"b2": 1.0}, {"eps": 0.0},
     {"weight_decay": -1.0}, {"clip_norm": 0.0}, {"state_dtype": "float16"},
     {"state_dtype": "bfloat16", "b2": 0.999}, {"state_memory": "disk"}],
)  # fmt: skip
def test_bad_settings_raise(setting):
    with pytest.raises(ValueError, match="learn."):
        learn.LearnConfig(**setting)


def test_default_config_is_hashable():
    assert hash(learn.LearnConfig(credit=credit.CreditConfig())) == hash(learn.LearnConfig())


def test_divergence_may_be_measured_without_a_term_in_the_loss(base):
    config = dataclasses.replace(small.CONFIG, measure_kl=True)
    state, report = small.step(
        small.start(config), small.make(*small.iteration(), fresh={0: 0, 1: 0, 2: 0}), config
    )
    assert "kl_2" not in base[1] and state.reference is not None
    # The first step is taken from the starting policy itself.
    np.testing.assert_allclose(report["kl_2"], 0.0, atol=1e-6)
    small.same(base[0].params, state.params)
    # The sampler reported -1 and less for tokens of about -ln 16: every weight lies below 1.
    np.testing.assert_allclose(report["importance_off_2"], 1 - report["importance_2"], atol=1e-6)
    np.testing.assert_array_equal(report["importance_capped_2"], 0.0)
