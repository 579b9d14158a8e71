"""The trunk and the heads: hand numbers, published families, packing, role isolation, chunking."""

import json
import pathlib
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax import records
from spade_jax.policy import attention, heads, rotary, transformer

FORWARD = jax.jit(transformer.forward, static_argnums=1)
HF_TINY = pathlib.Path(__file__).parent / "data" / "hf_tiny"


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


def test_lowrank_head_starts_as_the_tied_head():
    config = small_config(role_head="lowrank")
    params = transformer.init(config, jax.random.key(3))
    hidden = run(params, config, np.arange(5)[None])
    tied = heads.logits(params, small_config(), hidden, jnp.array([0]))
    for role in (records.DESIGNER, records.AGENT):
        lowrank = heads.logits(params, config, hidden, jnp.array([role]))
        np.testing.assert_array_equal(lowrank, tied)


def test_gradient_of_one_role_never_touches_the_other_head():
    config = small_config(role_head="lowrank")
    params = transformer.init(config, jax.random.key(4))
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
        for name in ("lowrank_in", "lowrank_out"):
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
        np.testing.assert_allclose(one, other, atol=1e-6)
    gradients = [
        jax.jit(jax.grad(lambda p, f=f: sum(map(jnp.sum, f(p)))))(params) for f in (chunked, whole)
    ]
    scales = jax.tree.map(lambda x: jnp.max(jnp.abs(x)), gradients[1])
    jax.tree.map(
        lambda a, b, scale: np.testing.assert_allclose(a / scale, b / scale, atol=1e-6),
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


def read_safetensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header, body, tensors = json.loads(raw[8 : 8 + size]), raw[8 + size :], {}
    header.pop("__metadata__", None)
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        assert entry["dtype"] == "F32"
        tensors[name] = np.frombuffer(body[start:end], np.float32).reshape(entry["shape"])
    return tensors


def load_family(name: str) -> tuple[transformer.ModelConfig, dict]:
    hf = json.loads((HF_TINY / name / "config.json").read_text())
    config = transformer.ModelConfig(
        vocab_size=hf["vocab_size"],
        layers=hf["num_hidden_layers"],
        width=hf["hidden_size"],
        heads=hf["num_attention_heads"],
        kv_heads=hf["num_key_value_heads"],
        head_dim=hf.get("head_dim", hf["hidden_size"] // hf["num_attention_heads"]),
        mlp_width=hf["intermediate_size"],
        tied_embeddings=hf["tie_word_embeddings"],
        qk_norm=name == "qwen3",
        attention_bias=name == "qwen2",
    )
    tensors = read_safetensors(HF_TINY / name / "model.safetensors")
    width, channels = config.width, config.head_dim

    def layers(suffix, shape=None, transpose=True):
        found = [tensors[f"model.layers.{i}.{suffix}"] for i in range(config.layers)]
        return np.stack([x.T.reshape(shape or x.T.shape) if transpose else x for x in found])

    def into_heads(letter, count):
        return layers(f"self_attn.{letter}_proj.weight", (width, count, channels))

    attention = {
        "q_DHC": into_heads("q", config.heads),
        "k_DKC": into_heads("k", config.kv_heads),
        "v_DKC": into_heads("v", config.kv_heads),
        "o_HCD": layers("self_attn.o_proj.weight", (config.heads, channels, width)),
    }
    if config.attention_bias:
        for part, count in (("q_bias_HC", 4), ("k_bias_KC", 2), ("v_bias_KC", 2)):
            attention[part] = layers(f"self_attn.{part[0]}_proj.bias", (count, channels))
    if config.qk_norm:
        for part in ("q_norm", "k_norm"):
            attention[part] = {"scale": layers(f"self_attn.{part}.weight")}
    mlp = {f"{part}": layers(f"mlp.{part[:-3]}_proj.weight") for part in ("gate_DF", "up_DF")}
    mlp["down_FD"] = layers("mlp.down_proj.weight")
    params = {
        "embed": tensors["model.embed_tokens.weight"],
        "norm": {"scale": tensors["model.norm.weight"]},
        "layers": {
            "attention": attention,
            "attention_norm": {"scale": layers("input_layernorm.weight")},
            "mlp": mlp,
            "mlp_norm": {"scale": layers("post_attention_layernorm.weight")},
        },
    }
    if not config.tied_embeddings:
        params["head"] = {"output_DV": tensors["lm_head.weight"].T}
    return config, jax.tree.map(jnp.asarray, params)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_published_families_give_their_reference_numbers(family):
    config, params = load_family(family)
    same = jax.tree.map(jnp.shape, transformer.init(config, jax.random.key(0)))
    assert same == jax.tree.map(jnp.shape, params)
    stored = np.load(HF_TINY / family / "io.npz")
    attn = stored["attn"]
    hidden = run(params, config, stored["ids"], stored["pos"], attn)
    scores = heads.logits(params, config, hidden, jnp.zeros(3, jnp.int32))
    np.testing.assert_allclose(
        np.where(attn[..., None], scores, 0),
        np.where(attn[..., None], stored["logits"], 0),
        atol=1e-4,
    )
    both = (attn[:, :-1] * attn[:, 1:]).astype(bool)
    targets = jnp.asarray(stored["ids"][:, 1:])
    for temperature, field in ((1.0, "logp"), (0.7, "temp_logp")):
        logps, _ = heads.token_logps(
            params, config, hidden[:, :-1], targets, jnp.zeros(3, jnp.int32), temperature, 8
        )
        np.testing.assert_allclose(
            np.where(both, logps, 0), np.where(both, stored[field], 0), atol=1e-4
        )
