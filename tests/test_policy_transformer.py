"""The trunk and the heads: hand numbers, packing, windows, experts, role isolation, chunking."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax import records
from spade_jax.policy import attention, heads, moe, rotary, transformer

FORWARD = jax.jit(transformer.forward, static_argnums=1)


def small_config(**changes) -> transformer.ModelConfig:
    sizes = dict(vocab_size=31, layers=2, width=16, heads=4, kv_heads=2, head_dim=6, mlp_width=24)
    return transformer.ModelConfig(**{**sizes, **changes})


def run(params, config, tokens, positions=None, segments=None):
    tokens = jnp.asarray(tokens)
    if positions is None:
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    if segments is None:
        segments = jnp.ones_like(tokens)
    return FORWARD(params, config, tokens, jnp.asarray(positions), jnp.asarray(segments))


def test_rotation_by_hand():
    # C = 4, theta = 100: frequencies 1 and 100^(-1/2) = 0.1. Position 2 turns channels (0, 2) by
    # 2 rad and (1, 3) by 0.2 rad: [1, 0, 0, 1] -> [cos 2, -sin .2, sin 2, cos .2].
    x_BTHC = jnp.array([1.0, 0.0, 0.0, 1.0])[None, None, None]
    frequencies_C = rotary.frequencies(small_config(head_dim=4, rope_theta=100.0))
    turned = rotary.rotate(x_BTHC, jnp.array([[2]]), frequencies_C)[0, 0, 0]
    np.testing.assert_allclose(turned, [-0.416147, -0.198669, 0.909297, 0.980067], atol=1e-6)


def test_grouped_queries_share_keys_by_hand():
    # H = 2 queries on K = 1 key head, C = 1. Keys ln 3 and 0: query 1 weighs them 3/4 and 1/4,
    # query 0 equally. Values 4 and 8 -> 5 and 6; the third place is masked.
    q_BTHC = jnp.array([1.0, 0.0]).reshape(1, 1, 2, 1)
    k_BSKC = jnp.array([np.log(3.0), 0.0, 9.0]).reshape(1, 3, 1, 1)
    v_BSKC = jnp.array([4.0, 8.0, 100.0]).reshape(1, 3, 1, 1)
    mask_BTS = jnp.array([[[True, True, False]]])
    attended = attention.attend(q_BTHC, k_BSKC, v_BSKC, mask_BTS)
    np.testing.assert_allclose(attended[0, 0, :, 0], [5.0, 6.0], rtol=1e-6)


def test_a_token_does_not_see_later_tokens():
    config = small_config()
    params = transformer.init(config, jax.random.key(0))
    tokens = np.arange(8)[None] + 1
    changed = tokens.copy()
    changed[0, 5:] = 29
    before, after = run(params, config, tokens), run(params, config, changed)
    np.testing.assert_array_equal(before[0, :5], after[0, :5])
    assert np.abs(before[0, 5:] - after[0, 5:]).max() > 1e-3


def test_packed_and_padded_rows_equal_separate_rows():
    config = small_config(qk_norm=True, attention_bias=True)
    params = transformer.init(config, jax.random.key(1))
    one, two = np.array([[3, 4, 5]]), np.array([[6, 7, 8, 9]])
    packed = np.array([[0, 3, 4, 5, 6, 7, 8, 9, 0, 0]])
    segments = np.array([[0, 1, 1, 1, 2, 2, 2, 2, 0, 0]])
    positions = np.array([[0, 0, 1, 2, 0, 1, 2, 3, 0, 0]])
    hidden = run(params, config, packed, positions, segments)
    np.testing.assert_allclose(hidden[0, 1:4], run(params, config, one)[0], atol=1e-5)
    np.testing.assert_allclose(hidden[0, 4:8], run(params, config, two)[0], atol=1e-5)
    assert np.isfinite(hidden).all()


def test_remat_changes_no_gradient():
    config, again = small_config(), small_config(remat="full")
    params = transformer.init(config, jax.random.key(2))
    tokens = np.arange(6)[None]

    def loss(params, config):
        return jnp.sum(run(params, config, tokens) ** 2)

    gradient = jax.jit(jax.grad(loss), static_argnums=1)
    plain, remat = gradient(params, config), gradient(params, again)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), plain, remat)


@pytest.mark.parametrize("kind", ["lowrank", "separate"])
def test_role_heads_start_as_the_tied_head(kind):
    config = small_config(role_head=kind)
    params = transformer.init(config, jax.random.key(3))
    hidden = run(params, config, np.arange(5)[None])
    tied = heads.logits(params, small_config(), hidden, jnp.array([0]))
    for role in (records.DESIGNER, records.AGENT):
        found = heads.logits(params, config, hidden, jnp.array([role]))
        np.testing.assert_allclose(found, tied, atol=1e-6)


def test_rows_of_both_roles_in_one_batch_use_their_own_projection():
    # Width 1 and two tokens: the designer's projection is [1, 2], the agent's [10, 20].
    config = small_config(vocab_size=2, width=1, role_head="separate")
    params = {"head": {"roles_ADV": jnp.array([[[1.0, 2.0]], [[10.0, 20.0]]])}}
    hidden_BD = jnp.array([[3.0], [3.0]])
    found = heads.logits(params, config, hidden_BD, jnp.array([records.DESIGNER, records.AGENT]))
    np.testing.assert_array_equal(found, [[3.0, 6.0], [30.0, 60.0]])


def test_a_window_hides_what_lies_further_back():
    # One layer, a window of 3: token 4 sees tokens 2, 3 and 4, so token 1 changes tokens 1 to 3.
    config = small_config(layers=1, window=3, window_layers=(1,))
    params = transformer.init(config, jax.random.key(10))
    tokens = np.arange(8)[None] + 1
    changed = tokens.copy()
    changed[0, 1] = 30
    moved = np.abs(run(params, config, tokens) - run(params, config, changed))[0].max(-1)
    assert (moved > 0).tolist() == [False, True, True, True, False, False, False, False]


def test_experts_are_weighted_by_the_router_by_hand():
    # X = 2 experts of width 1, both used. Router logits ln 3 and 0: weights 3/4 and 1/4. Expert e
    # gives silu(g_e) * u_e * d_e for input 1: silu(1) = 0.731059; 4 and 8 as u * d.
    config = small_config(width=1, mlp_width=1, experts=2, experts_per_token=2)
    x_ND = jnp.ones((1, 1))
    experts_NK, weights_NK = moe.route(config, jnp.array([[np.log(3.0), 0.0]]), x_ND)
    ones = jnp.ones((2, 1, 1))
    matrices = (ones, ones * 4, jnp.array([1.0, 2.0]).reshape(2, 1, 1))
    mixed = moe.mix(config, x_ND, experts_NK, weights_NK, matrices)
    np.testing.assert_allclose(mixed, [[0.731059 * (0.75 * 4 + 0.25 * 8)]], rtol=1e-5)


def test_llama3_stretches_long_wavelengths_only_by_hand():
    # C = 4, theta = 10,000: frequencies 1 and 0.01, wavelengths 6.28 and 628 tokens. With 8,192
    # original positions both turn more than 4 times: kept. With 400 the second turns 0.64 times,
    # below 1: divided by 8; the first is kept.
    def turns(positions):
        scaling = transformer.RopeScaling(kind="llama3", factor=8.0, original_positions=positions)
        return rotary.frequencies(small_config(head_dim=4, rope_scaling=scaling))

    np.testing.assert_allclose(turns(8192), [1.0, 0.01], rtol=1e-6)
    np.testing.assert_allclose(turns(400), [1.0, 0.00125], rtol=1e-6)


@pytest.mark.parametrize("kind", ["lowrank", "separate"])
def test_gradient_of_one_role_never_touches_the_other_head(kind):
    config = small_config(role_head=kind)
    params = transformer.init(config, jax.random.key(4))
    if kind == "lowrank":
        shape = params["head"]["lowrank_out"].shape
        params["head"]["lowrank_out"] = jax.random.normal(jax.random.key(5), shape) * 0.1
    tokens = np.arange(10).reshape(2, 5)
    roles = jnp.array([records.DESIGNER, records.AGENT])

    def loss(params, role):
        hidden = run(params, config, tokens)
        logps, _ = heads.token_logps(params, config, hidden, jnp.asarray(tokens), roles)
        return jnp.sum(logps * (roles == role)[:, None])

    for role in (records.DESIGNER, records.AGENT):
        gradient = jax.jit(jax.grad(loss))(params, role)
        for name in params["head"]:
            assert np.abs(gradient["head"][name][role]).max() > 0
            assert np.abs(gradient["head"][name][1 - role]).max() == 0
        trunk = jax.tree.leaves(gradient["layers"])
        assert all(np.abs(leaf).max() > 0 for leaf in trunk)


@pytest.mark.parametrize("tied", [True, False])
def test_chunked_logps_equal_the_whole_softmax_with_gradients(tied):
    config = small_config(role_head="lowrank", tied_embeddings=tied)
    params = transformer.init(config, jax.random.key(6))
    shape = params["head"]["lowrank_out"].shape
    params["head"]["lowrank_out"] = jax.random.normal(jax.random.key(7), shape) * 0.1
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 31, (3, 7)))
    roles = jnp.asarray(np.random.default_rng(1).integers(0, 2, (3, 7)))
    temperature = jnp.array([[0.7], [1.0], [1.3]])

    def chunked(params):
        hidden = run(params, config, tokens)
        return heads.token_logps(params, config, hidden, tokens, roles, temperature, 6)

    def whole(params):
        scores = heads.logits(params, config, run(params, config, tokens), roles)
        logps = jax.nn.log_softmax(scores / temperature[..., None])
        taken = jnp.take_along_axis(logps, tokens[..., None], -1)[..., 0]
        return taken, -jnp.sum(jnp.exp(logps) * logps, -1)

    for one, other in zip(chunked(params), whole(params), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6, rtol=1e-6)
    gradients = [
        jax.jit(jax.grad(lambda p, f=f: sum(map(jnp.sum, f(p)))))(params) for f in (chunked, whole)
    ]
    scales = jax.tree.map(lambda x: jnp.max(jnp.abs(x)), gradients[1])
    jax.tree.map(
        lambda a, b, scale: np.testing.assert_allclose(a / scale, b / scale, atol=2e-6),
        *gradients,
        scales,
    )


def test_logit_memory_follows_the_chunk_and_not_the_batch():
    config = small_config(vocab_size=2048)
    params = transformer.init(config, jax.random.key(8))
    hidden = jnp.ones((8, 128, config.width))
    tokens, roles = jnp.zeros((8, 128), jnp.int32), jnp.ones((8, 1), jnp.int32)

    def loss(params, hidden, chunk_tokens):
        logps, _ = heads.token_logps(params, config, hidden, tokens, roles, 1.0, chunk_tokens)
        return jnp.sum(logps)

    step = jax.jit(jax.grad(loss, argnums=(0, 1)), static_argnums=2)
    peak_bytes = {
        chunk: step.lower(params, hidden, chunk).compile().memory_analysis().temp_size_in_bytes
        for chunk in (32, 1024)
    }
    whole_batch_logits_bytes = 8 * 128 * 2048 * 4
    assert peak_bytes[32] < whole_batch_logits_bytes / 4
    assert peak_bytes[1024] > whole_batch_logits_bytes


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dtypes_are_the_configured_ones(dtype):
    config = small_config(compute_dtype=dtype, param_dtype=dtype, role_head="lowrank")
    params = transformer.init(config, jax.random.key(9))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(dtype)}
    hidden = run(params, config, np.arange(4)[None])
    assert hidden.dtype == jnp.dtype(dtype)
    assert heads.logits(params, config, hidden, jnp.array([0])).dtype == jnp.float32


@pytest.mark.parametrize(
    "change, part",
    [
        ({"kv_heads": 3}, "kv_heads=3"),
        ({"head_dim": 5}, "head_dim=5"),
        ({"layers": 0}, "layers=0"),
        ({"role_head": "third"}, "role_head='third'"),
        ({"experts": 4}, "experts_per_token=0"),
        ({"window": 4}, "window=4"),
        ({"window": 4, "window_layers": (1, 0, 1)}, "window_layers="),
        ({"remat": "some"}, "remat='some'"),
    ],
)
def test_impossible_sizes_are_refused_by_name(change, part):
    with pytest.raises(ValueError, match=part):
        small_config(**change)
