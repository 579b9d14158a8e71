"""Parameters and batches over eight simulated devices, and files of parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax.policy import heads, sampler, sharding, transformer, weights


def divisible_config(**changes) -> transformer.ModelConfig:
    sizes = dict(vocab_size=32, layers=2, width=16, heads=4, kv_heads=2, head_dim=8, mlp_width=24)
    options = dict(role_head="lowrank", tied_embeddings=False, qk_norm=True, attention_bias=True)
    return transformer.ModelConfig(**{**sizes, **options, **changes})


def loss(params, config, tokens, roles):
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    hidden = transformer.forward(params, config, tokens, positions, jnp.ones_like(tokens))
    logps, entropy = heads.token_logps(params, config, hidden, tokens, roles, 1.0, 16)
    return jnp.mean(logps) + jnp.mean(entropy)


def test_sharded_loss_and_gradients_equal_unsharded_ones():
    config = divisible_config()
    mesh = sharding.make_mesh(data=2, fsdp=2, tensor=2)
    params = transformer.init(config, jax.random.key(0))
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 32, (8, 10)))
    roles = jnp.arange(8) % 2
    step = jax.jit(jax.value_and_grad(loss), static_argnums=1)
    plain_loss, plain = step(params, config, tokens, roles)
    placed = jax.device_put(params, sharding.param_shardings(config, mesh))
    batch = jax.device_put((tokens, roles), sharding.batch_sharding(mesh))
    sharded_loss, sharded = step(placed, config, *batch)
    np.testing.assert_allclose(sharded_loss, plain_loss, rtol=1e-6)
    scales = jax.tree.map(lambda x: float(jnp.max(jnp.abs(x))) + 1e-9, plain)
    jax.tree.map(
        lambda a, b, scale: np.testing.assert_allclose(a / scale, b / scale, atol=1e-5),
        plain,
        sharded,
        scales,
    )


def test_matrices_are_really_cut():
    mesh = sharding.make_mesh(2, 2, 2)
    shardings = sharding.param_shardings(divisible_config(), mesh)
    params = transformer.init(divisible_config(), jax.random.key(0))
    q_LDHC = params["layers"]["attention"]["q_DHC"]
    cut = shardings["layers"]["attention"]["q_DHC"].shard_shape(q_LDHC.shape)
    assert cut == (2, 8, 2, 8)
    assert shardings["norm"]["scale"].is_fully_replicated
    assert sharding.batch_parts(mesh) == 4


def test_every_parameter_of_every_option_has_a_sharding():
    mesh = sharding.make_mesh(1, 1, 1, devices=jax.devices()[:1])
    for tied in (True, False):
        config = divisible_config(tied_embeddings=tied)
        shapes = jax.eval_shape(lambda k, c=config: transformer.init(c, k), jax.random.key(0))
        shardings = sharding.param_shardings(config, mesh)
        assert jax.tree.structure(shapes) == jax.tree.structure(shardings)


def test_sizes_that_do_not_divide_are_refused_by_name():
    mesh = sharding.make_mesh(2, 1, 4)
    with pytest.raises(ValueError, match="'kv_heads'=2 must be a multiple of mesh axis 'tensor'=4"):
        sharding.param_shardings(divisible_config(), mesh)
    with pytest.raises(ValueError, match="needs 6 devices and there are 8"):
        sharding.make_mesh(3, 2, 1)


def test_sampling_from_sharded_parameters_gives_the_same_replies():
    config = divisible_config()
    mesh = sharding.make_mesh(2, 2, 2)
    params = transformer.init(config, jax.random.key(1))
    placed = jax.device_put(params, sharding.param_shardings(config, mesh))
    engine = sampler.Sampler(config, end_ids=(1,), max_length=32, batch_buckets=(4,))
    prompts, roles, seeds = [(3, 4, 5), (6,), (7, 8)], [0, 1, 0], [1, 2, 3]
    sampling = sampler.SamplingConfig(max_tokens=6)
    plain = engine.generate(params, prompts, roles, seeds, sampling)
    sharded = engine.generate(placed, prompts, roles, seeds, sampling)
    for one, other in zip(plain, sharded, strict=True):
        assert one.ids == other.ids
        np.testing.assert_allclose(one.logps, other.logps, atol=1e-5)


@pytest.mark.parametrize(
    "dtype, tolerance", [("float32", 0), ("float16", 1e-3), ("bfloat16", 8e-3)]
)
def test_saved_parameters_come_back_with_their_config(tmp_path, dtype, tolerance):
    config = divisible_config()
    params = transformer.init(config, jax.random.key(0))
    path = tmp_path / "deep" / "policy.npz"
    weights.save(path, params, config, dtype=dtype, note={"seed": 3})
    loaded, loaded_config = weights.load(path)
    assert loaded_config == config
    assert weights.note(path) == {"seed": 3}
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=1e-6 * bool(tolerance)),
        params,
        loaded,
    )
    assert {leaf.dtype for leaf in jax.tree.leaves(loaded)} == {jnp.dtype("float32")}
    assert [entry.name for entry in path.parent.iterdir()] == ["policy.npz"]


def test_damaged_or_foreign_files_are_refused(tmp_path):
    config = divisible_config()
    params = transformer.init(config, jax.random.key(0))
    path = tmp_path / "policy.npz"
    weights.save(path, params, config)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="policy.npz"):
        weights.load(path)
    path.write_bytes(b"no archive")
    with pytest.raises(ValueError, match="policy.npz"):
        weights.load(path)
    np.savez(path, a=np.zeros(2))
    with pytest.raises(ValueError, match="no readable model config"):
        weights.load(path)
    np.savez(path, a=np.array([{"pickled": 1}], dtype=object))
    with pytest.raises(ValueError, match="policy.npz"):
        weights.load(path)
    weights.save(path, {**params, "embed": params["embed"][:4]}, config)
    with pytest.raises(ValueError, match="parameter embed is \\(4, 16\\)"):
        weights.load(path)
    with pytest.raises(FileNotFoundError):
        weights.load(tmp_path / "absent.npz")


def test_numbers_too_large_for_half_width_are_not_saved(tmp_path):
    params = transformer.init(divisible_config(), jax.random.key(0))
    params["norm"] = {"scale": jnp.full(16, 1e6)}
    with pytest.raises(ValueError, match="norm/scale is not finite as float16"):
        weights.save(tmp_path / "policy.npz", params, divisible_config(), dtype="float16")
    assert not list(tmp_path.iterdir())
