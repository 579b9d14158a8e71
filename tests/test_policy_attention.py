"""Attention over packed rows: blocks and the kernel give the dense numbers, in both passes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax.policy import attention, sharding

ROWS, TOKENS, HEADS, KV_HEADS, CHANNELS = 2, 128, 4, 2, 8


@pytest.fixture(scope="module")
def given():
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = [(ROWS, TOKENS, heads, CHANNELS) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    arrays = [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]
    segments = np.zeros((ROWS, TOKENS), np.int32)
    segments[0, :50], segments[0, 50:90], segments[0, 90:] = 1, 2, 3
    segments[1, :20], segments[1, 20:110] = 1, 2  # and padding
    return arrays, jnp.asarray(segments)


def run(attend, given):
    """Attended values and gradients; what padding gives has no meaning and no gradient."""
    arrays, segments = given

    def total(arrays):
        attended = attend(*arrays, segments) * (segments > 0)[..., None, None]
        return (
            attended * jnp.cos(jnp.arange(attended.size)).reshape(attended.shape)
        ).sum(), attended

    (_, attended), gradients = jax.jit(jax.value_and_grad(total, has_aux=True))(arrays)
    return [attended, *gradients]


def same(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=5e-6)


def blocks_of(block, **more):
    return lambda *arrays: attention.packed(*arrays, block=block, **more)


def test_blocks_equal_the_dense_way(given):
    same(run(blocks_of(48), given), run(blocks_of(TOKENS), given))


def test_blocks_equal_the_dense_way_within_a_window_and_a_cap(given):
    more = {"reach": jnp.int32(7), "softcap": 2.0}
    same(run(blocks_of(64, **more), given), run(blocks_of(TOKENS, **more), given))


def test_the_kernel_equals_the_dense_way_with_rows_and_heads_cut(given):
    mesh = sharding.make_mesh(fsdp=2, tensor=2, devices=jax.devices()[:4])
    kernel = lambda *arrays: attention.splash(*arrays, mesh, interpret=True)  # noqa: E731
    same(run(kernel, given), run(blocks_of(TOKENS), given))


def test_memory_of_both_passes_grows_with_the_block(given):
    long = (1, 4096, 4, 16)
    arrays = [jax.ShapeDtypeStruct(long, jnp.float32)] * 3

    def temporary(block):
        def total(arrays, segments):
            return attention.packed(*arrays, segments, block=block).sum()

        segments = jax.ShapeDtypeStruct(long[:2], jnp.int32)
        step = jax.jit(jax.grad(total)).lower(arrays, segments).compile()
        return step.memory_analysis().temp_size_in_bytes

    assert temporary(512) < temporary(4096) / 3


def test_rows_that_the_kernel_cannot_cut_raise(given):
    (q, k, v), segments = given
    mesh = sharding.make_mesh(devices=jax.devices()[:1])
    with pytest.raises(ValueError, match="multiple of 128"):
        attention.splash(q[:, :100], k[:, :100], v[:, :100], segments[:, :100], mesh)
    with pytest.raises(ValueError, match="windows"):
        attention.choose("splash", mesh)(q, k, v, segments, jnp.int32(4))
