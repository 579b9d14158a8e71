"""Over a mesh, layers move weights and not activations, and give the numbers of one device."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from launch import cost, hlo
from spade_jax.policy import heads, moe, platforms, sharding, transformer

CONFIG = transformer.ModelConfig(
    vocab_size=64,
    layers=3,
    width=64,
    heads=4,
    kv_heads=2,
    head_dim=16,
    mlp_width=96,
    remat="full",
)


def loss(params, tokens_BT, mesh):
    positions = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1]), tokens_BT.shape)
    segments = jnp.ones_like(tokens_BT)
    hidden = transformer.forward(params, CONFIG, tokens_BT, positions, segments, mesh)
    return (hidden * jnp.sin(jnp.arange(CONFIG.width))).mean()  # their mean square is always 1


def compiled(tokens, mesh):
    places = sharding.param_shardings(CONFIG, mesh)
    shapes = jax.eval_shape(lambda key: transformer.init(CONFIG, key), jax.random.key(0))
    params = jax.tree.map(
        lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), shapes, places
    )
    rows = jax.ShapeDtypeStruct((8, tokens), jnp.int32, sharding=sharding.batch_sharding(mesh))
    gradient = jax.jit(jax.grad(functools.partial(loss, mesh=mesh)), out_shardings=places)
    return gradient.lower(params, rows).compile()


def moved_in_layers(program):
    """Bytes that collectives inside the loops over layers exchange, and their kinds."""
    works = cost.works(hlo.parse(program.as_text()))
    inside = [work for work in works if work.collective and work.times >= CONFIG.layers]
    kinds = {work.collective.kind for work in inside}
    return sum(work.times * work.collective.bytes for work in inside), kinds


def test_what_layers_move_does_not_grow_with_tokens():
    mesh = sharding.make_mesh(fsdp=8)
    short, kinds = moved_in_layers(compiled(32, mesh))
    assert "all-gather" in kinds and "all-to-all" not in kinds
    assert moved_in_layers(compiled(64, mesh))[0] == short


@pytest.mark.parametrize("sizes", [{"fsdp": 8}, {"fsdp": 4, "tensor": 2}])
def test_gathered_layers_give_the_gradient_of_one_device(sizes):
    params = transformer.init(CONFIG, jax.random.key(0))
    tokens = np.random.default_rng(0).integers(0, 64, (8, 16))
    gradient = jax.grad(loss)
    alone = jax.jit(gradient, static_argnums=2)(params, tokens, None)
    mesh = sharding.make_mesh(**sizes)
    spread = jax.device_put(params, sharding.param_shardings(CONFIG, mesh))
    rows = jax.device_put(tokens, sharding.batch_sharding(mesh))
    cut = jax.jit(gradient, static_argnums=2)(spread, rows, mesh)
    for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(cut), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-6)


def head_loss(head, hidden_BTD, config, mesh):
    rows, tokens = hidden_BTD.shape[:2]
    targets = jnp.arange(rows * tokens).reshape(rows, tokens) % config.vocab_size
    parts = 1 if mesh is None else sharding.batch_parts(mesh)
    made = heads.token_logps(  # four chunks of every row
        head, config, hidden_BTD, targets, targets % 2, 1.0, rows // parts * tokens // 4, mesh
    )
    return made[0].mean() + made[1].mean()


def head_case(role_head, mesh):
    config = dataclasses.replace(CONFIG, role_head=role_head, tied_embeddings=False)
    params = transformer.init(config, jax.random.key(0))
    hidden = jax.random.normal(jax.random.key(1), (8, 16, CONFIG.width))
    program = jax.jit(jax.grad(head_loss, (0, 1)), static_argnums=(2, 3))
    head = {"head": params["head"]}
    if mesh is None:
        return program, (head, hidden, config, None)
    places = {"head": sharding.param_shardings(config, mesh)["head"]}
    rows = jax.device_put(hidden, sharding.batch_sharding(mesh))
    return program, (jax.device_put(head, places), rows, config, mesh)


def test_a_head_on_parts_of_the_batch_gives_the_gradient_of_one_device():
    program, given = head_case("lowrank", None)
    alone = program(*given)
    program, given = head_case("lowrank", sharding.make_mesh(data=2, fsdp=2, tensor=2))
    for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(program(*given)), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-7)


def test_the_gradient_of_a_head_is_summed_once_and_not_for_every_chunk():
    program, given = head_case("tied", sharding.make_mesh(fsdp=8))
    works = cost.works(hlo.parse(program.lower(*given).compile().as_text()))
    exchanges = [work for work in works if work.collective and len(work.collective.group) > 1]
    kinds = [(work.collective.kind, work.times) for work in exchanges]
    assert sorted(kinds) == [("all-gather", 1), ("reduce-scatter", 1)]


@pytest.mark.parametrize("rows", [256, 230])  # whole blocks, and not
def test_the_kernel_for_the_gradient_of_experts_multiplies_each_stretch_with_its_own(rows):
    keys = jax.random.split(jax.random.key(0), 2)
    x_MI, change_MO = (jax.random.normal(key, (rows, 128)) for key in keys)
    counts = jnp.array([100, 0, 120], jnp.int32)  # one expert without tokens, and rows of nobody
    given = moe.matrices_gradient(x_MI, change_MO, counts, interpret=True)
    stretches = (slice(0, 100), slice(100, 100), slice(100, 220))
    expected = np.stack([np.asarray(x_MI)[s].T @ np.asarray(change_MO)[s] for s in stretches])
    np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-4)


def experts_gradient(tokens, mesh, platform):
    """Lower the gradient of a sum of experts' outputs for a platform, as text."""
    config = dataclasses.replace(CONFIG, experts=2, experts_per_token=1, mlp_width=128)
    matrices = [jnp.ones((2, 128, 128), jnp.bfloat16)] * 3
    x_ND = jnp.ones((tokens, 128), jnp.bfloat16)
    experts_NK, weights_NK = jnp.zeros((tokens, 1), jnp.int32), jnp.ones((tokens, 1))

    def total(matrices):
        return jnp.sum(moe.mix(config, x_ND, experts_NK, weights_NK, matrices))

    with jax.set_mesh(mesh), platforms.compiled_for(platform):
        traced = jax.jit(jax.grad(total)).trace(matrices)
        return traced.lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.parametrize("tokens", [256, 200])
@pytest.mark.parametrize("parts", [1, 4])
def test_on_tpus_the_gradient_of_every_expert_matrix_is_the_kernel(tokens, parts):
    mesh = sharding.make_mesh(fsdp=parts, devices=jax.devices()[:parts])
    text = experts_gradient(tokens, mesh, "tpu")
    assert "@tpu_custom_call" in text and text.count("call @tgmm") == 3
    assert "@tgmm" not in experts_gradient(tokens, mesh, "cpu")


def test_rows_filled_up_for_tpus_change_neither_outputs_nor_gradients():
    config = dataclasses.replace(CONFIG, experts=3, experts_per_token=1)
    keys = jax.random.split(jax.random.key(0), 5)
    shapes = ((3, 64, 96), (3, 64, 96), (3, 96, 64))
    matrices = [jax.random.normal(k, s) * 0.1 for k, s in zip(keys, shapes, strict=False)]
    x_ND = jax.random.normal(keys[3], (13, 64))  # 13 rows become 16
    experts_NK = jax.random.randint(keys[4], (13, 1), 0, 3)

    def total(x_ND, weights_NK, matrices):
        return jnp.sum(moe.mix(config, x_ND, experts_NK, weights_NK, matrices) ** 2)

    program = jax.jit(jax.value_and_grad(total, (0, 1, 2)))
    given = (x_ND, jnp.linspace(0.5, 1, 13)[:, None], matrices)
    plain = program(*given)
    with platforms.compiled_for("tpu"):
        traced = program.trace(*given)
    assert "f32[16,96]" in str(traced.jaxpr) and "f32[13,96]" not in str(traced.jaxpr)
    filled = traced.lower().compile()(*given)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), plain, filled)
