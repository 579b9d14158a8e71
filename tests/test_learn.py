"""The jitted update: invariances, masks, ratios, credit over a life, and that it learns."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax import batch, credit, curriculum, learn, ledger, objectives, optimizer, records
from spade_jax.policy import heads, sharding, transformer

MODEL = transformer.ModelConfig(
    vocab_size=16, layers=1, width=16, heads=4, kv_heads=2, head_dim=4, mlp_width=32
)
# The large eps keeps Adam's first step proportional to the gradient: with a tiny one, rounding of
# a gradient near 0 would decide the sign of a full step.
CONFIG = learn.LearnConfig(learning_rate=1e-2, eps=1e-2)
CURRICULUM = curriculum.CurriculumConfig(ages=2)
SHAPE = batch.TableShape(environments=3, seeds=2, plays=4, drafts=4)
ROWS = batch.BatchConfig(row_tokens=16, rows_multiple=16)
SLOTS = 4


def mesh_of(**sizes):
    count = int(np.prod(list(sizes.values()))) if sizes else 1
    return sharding.make_mesh(**sizes, devices=jax.devices()[:count])


def reply(ids, logps=None):
    logps = [-1.0 - 0.1 * i for i in range(len(ids))] if logps is None else logps
    return records.Reply(ids=tuple(map(int, ids)), logps=tuple(map(float, logps)), stopped=True)


def episode(n, s, g, arm, answer, value, prompt=(1, 2, 3)):
    turn = records.Turn(observed_ids=tuple(prompt), reply=answer, action="", reward=0.0)
    return records.Episode(
        environment=n, seed_index=s, play=g, arm=arm, seed=s, turns=(turn,), value=float(value),
        fault="", detail="", truncated=False, observation="",
    )  # fmt: skip


def draft(uid, answer, prompt=(1, 2)):
    return records.Draft(
        uid=uid, generation=0, skill=records.SKILLS[0], difficulty="easy", prompt_ids=tuple(prompt),
        reply=answer, text="", source=None, version=0,
    )  # fmt: skip


def iteration(seed=0):
    """Plays of unequal length in three environments, and four drafts: two of them refused."""
    rng = np.random.default_rng(seed)
    plays = [
        episode(n, s, g, arm, reply(rng.integers(0, 16, rng.integers(1, 8))), rng.integers(0, 2))
        for n in range(3)
        for s in range(2)
        for arm, count in ((records.PLAIN, 4), (records.HINTED, 2))
        for g in range(count)
    ]
    answers = [reply(rng.integers(0, 16, length)) for length in (9, 6, 3, 8)]
    credits = [
        batch.DraftCredit(draft=draft(0, answers[0]), slot=0),
        batch.DraftCredit(draft=draft(1, answers[1]), slot=2, penalty=0.1),
        batch.DraftCredit(draft=draft(2, answers[2]), fixed=-0.5),
        batch.DraftCredit(draft=draft(3, answers[3]), fixed=-1.0),
    ]
    return plays, credits


def make(plays, credits, mesh=None, rows=ROWS, fresh=None, shape=SHAPE, slots=(0, 1, 2)):
    return batch.build(
        plays, credits, slots=slots, fresh=fresh or {}, pool_slots=SLOTS, shape=shape, config=rows,
        mesh=mesh or mesh_of(),
    )  # fmt: skip


def start(config=CONFIG, mesh=None, model=MODEL, slots=SLOTS, seed=0):
    params = transformer.init(model, jax.random.key(seed))
    return learn.init(params, model, config, CURRICULUM, slots, mesh or mesh_of())


def step(state, made, config=CONFIG, mesh=None, model=MODEL):
    given = made.batch if isinstance(made, batch.Made) else made
    state, report = learn.update(state, given, model, config, CURRICULUM, mesh or mesh_of())
    return state, jax.device_get(report)


def same(one, other, tolerance=1e-6):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=tolerance)


def same_report(one, other, tolerance=1e-5):
    for name in one:
        np.testing.assert_allclose(
            one[name], other[name], rtol=1e-4, atol=tolerance, err_msg=name, equal_nan=True
        )


@pytest.fixture(scope="module")
def base():
    state, report = step(start(), make(*iteration(), fresh={0: 0, 1: 0, 2: 0}))
    return jax.device_get(state), report


# ---------------------------------------------------------------- invariances


@pytest.mark.parametrize(
    "sizes", [{"fsdp": 8}, {"fsdp": 4, "tensor": 2}, {"data": 2, "fsdp": 2, "tensor": 2}]
)
def test_sharded_equals_unsharded(base, sizes):
    mesh = mesh_of(**sizes)
    made = make(*iteration(), mesh=mesh, fresh={0: 0, 1: 0, 2: 0})
    state, report = step(start(mesh=mesh), made, mesh=mesh)
    same(state, base[0])
    same_report(report, base[1])
    for leaf, place in zip(
        jax.tree.leaves(state.params),
        jax.tree.leaves(sharding.param_shardings(MODEL, mesh)),
        strict=True,
    ):
        assert leaf.sharding.is_equivalent_to(place, leaf.ndim)


def test_experts_cut_over_the_mesh_equal_one_device():
    model = dataclasses.replace(MODEL, experts=4, experts_per_token=2)
    mesh = mesh_of(fsdp=2, expert=2)
    whole, expected = step(
        start(model=model), make(*iteration(), fresh={0: 0, 1: 0, 2: 0}), model=model
    )
    made = make(*iteration(), mesh=mesh, fresh={0: 0, 1: 0, 2: 0})
    state, report = step(start(mesh=mesh, model=model), made, mesh=mesh, model=model)
    same(state.params, whole.params)
    same_report(report, expected)


@pytest.mark.parametrize("microbatches", [4])
def test_result_does_not_depend_on_microbatches(base, microbatches):
    config = dataclasses.replace(CONFIG, microbatches=microbatches)
    state, report = step(start(config), make(*iteration(), fresh={0: 0, 1: 0, 2: 0}), config)
    same(state, base[0])
    same_report(report, base[1])


def test_permuting_rows_changes_nothing(base):
    made = make(*iteration(), fresh={0: 0, 1: 0, 2: 0}).batch
    order = np.random.default_rng(1).permutation(made.tokens_BT.shape[0])
    shuffled = dataclasses.replace(
        made,
        **{
            field.name: getattr(made, field.name)[order]
            for field in dataclasses.fields(made)
            if field.name.endswith("_BT")
        },
    )
    assert not np.array_equal(made.tokens_BT, shuffled.tokens_BT)
    state, report = step(start(), shuffled)
    same(state, base[0])
    same_report(report, base[1])


def test_packing_changes_nothing(base):
    # 11 tokens hold any sequence here and seldom two: nearly one sequence a row
    rows = batch.BatchConfig(row_tokens=11, rows_multiple=28)
    state, report = step(start(), make(*iteration(), rows=rows, fresh={0: 0, 1: 0, 2: 0}))
    same(state, base[0])
    same_report(report, base[1])


def test_leaving_out_flat_groups_changes_nothing_but_what_is_measured(base):
    rows = dataclasses.replace(ROWS, drop_flat_groups=True)
    plays, credits = iteration()
    flat = {(0, 1), (2, 0)}
    plays = [
        dataclasses.replace(e, value=1.0) if (e.environment, e.seed_index) in flat else e
        for e in plays
    ]
    whole, report = step(start(), make(plays, credits, fresh={0: 0, 1: 0, 2: 0}))
    made = make(plays, credits, rows=rows, fresh={0: 0, 1: 0, 2: 0})
    assert made.counts["masked_no_spread"] >= 8
    left, left_report = step(start(), made)
    same(left, whole)
    for name in ("loss", "gradient_norm", "advantage_rms_2", "agent_advantage_NSG"):
        np.testing.assert_allclose(left_report[name], report[name], rtol=1e-4, atol=1e-6)


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
    plays, credits = iteration()
    lost = [dataclasses.replace(e, fault="infra" if e.environment == 0 else "") for e in plays]
    rows = dataclasses.replace(ROWS, drop_flat_groups=drop)
    for played, unpaid in ((plays, 0), (lost, 1)):
        made = make(played, credits, rows=rows, fresh={0: 0, 1: 0, 2: 0})
        _, report = step(start(), made)
        assert report["unpaid_drafts"] == unpaid
        assert ledger.check_update(made.counts, report)["unpaid"] == unpaid


def test_roles_pull_equally_hard(base):
    designer, agent = base[1]["advantage_rms_2"]
    assert agent > 0.1
    np.testing.assert_allclose(designer, agent, rtol=1e-5)


def test_advantages_in_the_report_are_the_plain_groups(base):
    plays, _ = iteration()
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
    state = start()
    prompt, ids = (1, 2, 3), rng.integers(0, 16, 6)
    tokens = jnp.array([[*prompt, *ids]])
    hidden = transformer.forward(
        state.params, MODEL, tokens, jnp.arange(9)[None], jnp.ones((1, 9), int)
    )
    scores = heads.logits(state.params, MODEL, hidden, jnp.array([records.AGENT]))
    logps = jax.nn.log_softmax(scores / temperature)[0, jnp.arange(2, 8), ids]
    plays = [episode(0, 0, g, records.PLAIN, reply(ids, logps), g % 2, prompt) for g in range(4)]
    made = batch.build(
        plays, [], slots=(0, 1, 2), fresh={}, pool_slots=SLOTS, shape=SHAPE, config=ROWS,
        mesh=mesh_of(), agent_temperature=temperature,
    )  # fmt: skip
    _, report = step(state, made)
    assert report["tokens_2"].tolist() == [0, 24]
    assert report["max_logp_gap_2"][records.AGENT] < 1e-5
    np.testing.assert_allclose(report["importance_2"][records.AGENT], 1.0, atol=1e-5)
    np.testing.assert_allclose(report["surprise_2"][records.AGENT], -logps.mean(), rtol=1e-5)


def test_a_gradient_that_is_not_finite_moves_nothing():
    made = make(*iteration())
    broken = dataclasses.replace(made.batch, logps_BT=made.batch.logps_BT * jnp.nan)
    before = jax.device_get(start())
    state, report = step(start(), broken)
    assert report["skipped_steps"] == 1 and report["update_norm"] == 0
    same(state.params, before.params, 0)
    same(state.opt_state, before.opt_state, 0)
    # the plays are counted all the same
    assert float(state.curriculum.plays_P.sum()) == 24


def test_norms_and_biases_do_not_decay():
    """Without a gradient only the decay moves a parameter."""
    model = dataclasses.replace(MODEL, attention_bias=True, qk_norm=True)
    params = jax.tree.map(jnp.ones_like, transformer.init(model, jax.random.key(0)))
    adam = optimizer.build(dataclasses.replace(CONFIG, weight_decay=0.1))
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
        CONFIG, minibatches=2, epochs=2, objective=objectives.ObjectiveConfig(kl_coefficient=0.1)
    )
    state, report = step(start(config), make(*iteration()), config)
    assert report["first_ratio_off_2"].tolist() == [0, 0]
    assert report["max_ratio_off_2"].min() > 1e-4
    assert int(state.step) == 4
    assert report["kl_2"].min() > 0  # later steps have left the starting policy
    assert "kl_2" not in step(start(), make(*iteration()))[1]  # nothing to differ from
    assert report["tokens_2"][0] == 2 * 26  # two epochs
    np.testing.assert_allclose(
        jax.tree.leaves(state.reference)[0],
        jax.tree.leaves(transformer.init(MODEL, jax.random.key(0)))[0],
    )


def test_old_log_probabilities_can_be_the_sampler_s():
    given = objectives.ObjectiveConfig(old="sampler", importance_cap=None)
    _, report = step(start(), make(*iteration()), dataclasses.replace(CONFIG, objective=given))
    # the made-up log-probabilities of the replies are not the model's: the ratio starts off 1
    assert report["first_ratio_off_2"].min() > 0.1
    assert report["importance_2"].tolist() == [1, 1]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_moments_are_kept_in_their_dtype(dtype):
    config = dataclasses.replace(CONFIG, state_dtype=dtype)
    params = {"w": jnp.ones((4, 4), jnp.bfloat16)}
    adam = optimizer.build(config)
    updates, state = adam.update({"w": jnp.full((4, 4), 0.5)}, adam.init(params), params)
    moments = [leaf for leaf in jax.tree.leaves(state) if leaf.ndim == 2]
    assert [m.dtype for m in moments] == [jnp.dtype(dtype)] * 2
    # the gradient of norm 2 is clipped to 1: .25; both moments, unbiased, give .25 / (.25 + eps)
    np.testing.assert_allclose(np.asarray(updates["w"], np.float32), 0.25 / 0.26 + 0.1, rtol=1e-2)


def test_moments_cannot_wait_in_host_memory_where_nothing_moves_them():
    config = dataclasses.replace(CONFIG, state_memory="pinned_host")
    with pytest.raises(ValueError, match="state_memory"):
        start(config)


# ---------------------------------------------------------------- that it learns


def test_both_roles_learn_a_bandit():
    """Eight prompts, one right token each, and one token that the designer must write."""
    shape = batch.TableShape(environments=3, seeds=2, plays=16, drafts=16)
    config = dataclasses.replace(CONFIG, learning_rate=1e-2, eps=1e-8, weight_decay=0.0)
    rows = batch.BatchConfig(row_tokens=16, rows_multiple=32, rows=(32,))
    state, rng = start(config), np.random.default_rng(0)
    prompts = {(n, s): (1, 2 + 2 * n + s) for n in range(3) for s in range(2)}

    @jax.jit
    def distribution(params, tokens_BT, roles_B):
        places = jnp.broadcast_to(jnp.arange(2), tokens_BT.shape)
        hidden = transformer.forward(params, MODEL, tokens_BT, places, jnp.ones_like(places))
        return jax.nn.log_softmax(heads.logits(params, MODEL, hidden, roles_B)[:, -1])

    def write(prompt_rows, roles):
        logps = np.asarray(
            distribution(state.params, jnp.array(prompt_rows), jnp.array(roles)), np.float64
        )
        chances = np.exp(logps) / np.exp(logps).sum(-1, keepdims=True)
        ids = [int(rng.choice(16, p=p)) for p in chances]
        return [reply([i], [logps[row, i]]) for row, i in enumerate(ids)]

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
            episode(n, s, g, records.PLAIN, a, value, prompts[n, s])
            for (n, s, g), a, value in zip(keys, answers, right, strict=True)
        ]
        wanted = [float(w.ids[0] == 9) for w in written]
        credits = [
            batch.DraftCredit(draft=draft(i, w, (1, 15)), fixed=value - 1.0)
            for i, (w, value) in enumerate(zip(written, wanted, strict=True))
        ]
        state, report = step(state, make(plays, credits, rows=rows, shape=shape), config)
        assert report["max_logp_gap_2"].max() < 1e-4
        history.append((np.mean(wanted), np.mean(right)))
    first, last = np.mean(history[:3], 0), np.mean(history[-3:], 0)
    assert first.max() < 0.3, first
    assert last.min() > 0.9, (first, last)


# ---------------------------------------------------------------- settings


def test_rows_that_do_not_divide_raise():
    config = dataclasses.replace(CONFIG, microbatches=3)
    with pytest.raises(ValueError, match="rows_multiple"):
        learn.check_rows(config, ROWS, mesh_of())
    with pytest.raises(
        ValueError, match="rows_multiple=4 must be a multiple of .* = 8; set it to 8"
    ):
        learn.check_rows(CONFIG, batch.BatchConfig(rows_multiple=4), mesh_of(fsdp=8))
    with pytest.raises(ValueError, match="do not divide"):
        step(start(config), make(*iteration()), config)
    learn.check_rows(CONFIG, ROWS, mesh_of())


def test_flat_groups_cannot_be_dropped_where_other_terms_need_them():
    config = dataclasses.replace(
        CONFIG, objective=objectives.ObjectiveConfig(entropy_coefficient=0.01)
    )
    with pytest.raises(ValueError, match="drop_flat_groups"):
        learn.check_rows(config, dataclasses.replace(ROWS, drop_flat_groups=True), mesh_of())


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
    config = dataclasses.replace(CONFIG, measure_kl=True)
    state, report = step(start(config), make(*iteration(), fresh={0: 0, 1: 0, 2: 0}), config)
    assert "kl_2" not in base[1] and state.reference is not None
    # The first step is taken from the starting policy itself.
    np.testing.assert_allclose(report["kl_2"], 0.0, atol=1e-6)
    same(base[0].params, state.params)
    # The sampler reported -1 and less for tokens of about -ln 16: every weight lies below 1.
    np.testing.assert_allclose(report["importance_off_2"], 1 - report["importance_2"], atol=1e-6)
    np.testing.assert_array_equal(report["importance_capped_2"], 0.0)
