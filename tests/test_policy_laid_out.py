"""Weights of a session: one copy of them, and the same numbers as from the stack."""

import gc

import jax
import numpy as np
import pytest

from spade_jax.policy import decode, laid_out, sampler, transformer

CONFIG = transformer.ModelConfig(
    vocab_size=64, layers=4, width=32, heads=4, kv_heads=2, head_dim=8, mlp_width=64,
    compute_dtype="bfloat16", window=3, window_layers=(1, 0, 1, 0),
)  # fmt: skip


def held_bytes() -> int:
    gc.collect()
    return sum(array.nbytes for array in jax.live_arrays())


# Matrices in bfloat16 are 2 bytes a number; norms and the layers' kinds are float32 and few.
def test_a_session_of_laid_out_weights_holds_them_once():
    engine = sampler.Sampler(CONFIG, end_ids=(2,), max_length=16, batch_buckets=(2,))
    before = held_bytes()
    params = transformer.init(CONFIG, jax.random.key(0))
    numbers = sum(leaf.size for leaf in jax.tree.leaves(params))
    session = engine.session(engine.lay_out(params))
    del params
    held = held_bytes() - before
    assert 2 * numbers <= held < 2.1 * numbers
    assert len(session.generate([(5, 6, 7)], [0], [0], sampler.SamplingConfig(max_tokens=2))) == 1


@pytest.mark.parametrize("cut", [None, 5])  # tokens that the cache holds already
def test_prompts_are_computed_alike_from_layers_and_from_their_stack(cut):
    params = transformer.init(CONFIG, jax.random.key(0))
    weights = laid_out.weights(params, CONFIG)
    assert weights.exact is None
    tokens_UT = np.random.default_rng(0).integers(0, 64, (2, 8)).astype(np.int32)
    starts_U = np.zeros(2, np.int32)
    whole = decode.extend(params, CONFIG, None, tokens_UT, starts_U)
    given = decode.extend(weights.ready, CONFIG, None, tokens_UT[:, :cut], starts_U)
    if cut:
        given = decode.extend(
            weights.ready, CONFIG, given, tokens_UT[:, cut:], np.full(2, cut, np.int32)
        )
    for one, other in zip(whole.keys_L, given.keys_L, strict=True):
        one = np.asarray(one, np.float32)[..., cut or 0 :]
        np.testing.assert_allclose(one, np.asarray(other, np.float32), atol=0.05)


def test_rounded_weights_keep_the_exact_ones_for_prompts():
    params = transformer.init(CONFIG, jax.random.key(0))
    weights = laid_out.weights(params, CONFIG, bits=8)
    assert weights.exact is params
    layer = laid_out.exact(weights.ready["layers"][3])
    gate_DF = np.asarray(params["layers"]["mlp"]["gate_DF"][3], np.float32)
    np.testing.assert_allclose(layer["mlp"]["gate_DF"], gate_DF, atol=np.abs(gate_DF).max() / 127)
