"""Log-probabilities in chunks: the numbers, gradients and memory of their own gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax.policy import heads, transformer


def model(**more):
    sizes = {"vocab_size": 50, "layers": 1, "width": 16, "heads": 2, "kv_heads": 1}
    return transformer.ModelConfig(**sizes, head_dim=8, mlp_width=16, **more)


@pytest.mark.parametrize(
    "more", [{"tied_embeddings": False}, {"role_head": "lowrank"}, {"logit_softcap": 3.0}]
)
def test_chunks_equal_the_whole_with_gradients(more):
    config, keys = model(**more), jax.random.split(jax.random.key(0), 6)
    params = transformer.init(config, keys[0])
    if config.role_head == "lowrank":
        out = params["head"]["lowrank_out"]
        params["head"]["lowrank_out"] = 0.1 * jax.random.normal(keys[1], out.shape)
    params = {name: params[name] for name in ("embed", "head") if name in params}
    hidden = jax.random.normal(keys[2], (3, 11, 16))
    targets = jax.random.randint(keys[3], (3, 11), 0, 50)
    roles = jax.random.randint(keys[4], (3, 11), 0, 2)
    pull = jax.random.normal(keys[5], (2, 3, 11))

    def whole(params, hidden):
        logps = jax.nn.log_softmax(heads.logits(params, config, hidden, roles) / 0.7)
        chosen = jnp.take_along_axis(logps, targets[..., None], -1)[..., 0]
        entropy = -(jnp.exp(logps) * logps).sum(-1)
        return (pull[0] * chosen + pull[1] * entropy).sum(), (chosen, entropy)

    def chunked(params, hidden):
        # 12 tokens over 3 rows: chunks of 4, the last one filled up
        made = heads.token_logps(params, config, hidden, targets, roles, 0.7, chunk_tokens=12)
        return (pull[0] * made[0] + pull[1] * made[1]).sum(), made

    expected = jax.jit(jax.value_and_grad(whole, (0, 1), has_aux=True))(params, hidden)
    given = jax.jit(jax.value_and_grad(chunked, (0, 1), has_aux=True))(params, hidden)
    for a, b in zip(jax.tree.leaves(given), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_memory_grows_with_the_chunk_and_not_with_tokens_times_vocabulary():
    """At 8 x 2,048 tokens and 49,152 words; compiled for shapes, nothing runs."""
    rows, width, vocabulary = 8, 16, 49152

    def chunked(params, hidden, targets, config):
        made = heads.token_logps(params, config, hidden, targets, targets * 0, chunk_tokens=1024)
        return made[0].sum()

    def naive(params, hidden, targets, config):
        logps = jax.nn.log_softmax(heads.logits(params, config, hidden, targets * 0))
        return jnp.take_along_axis(logps, targets[..., None], -1).sum()

    def temporary(function, tokens):
        config = transformer.ModelConfig(
            vocab_size=vocabulary, layers=1, width=width, heads=1, kv_heads=1, head_dim=8,
            mlp_width=8,
        )  # fmt: skip
        given = (
            {"embed": jax.ShapeDtypeStruct((vocabulary, width), jnp.float32)},
            jax.ShapeDtypeStruct((rows, tokens, width), jnp.float32),
            jax.ShapeDtypeStruct((rows, tokens), jnp.int32),
        )
        step = jax.jit(jax.grad(lambda *a: function(*a, config), argnums=(0, 1)))
        return step.lower(*given).compile().memory_analysis().temp_size_in_bytes

    ours = temporary(chunked, 2048)
    assert ours < temporary(naive, 2048) / 3
    # twice the tokens cost their hidden states and a few numbers each, far below their logits
    assert temporary(chunked, 4096) - ours < rows * 2048 * vocabulary * 4 / 50
