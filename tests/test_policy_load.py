"""Published checkpoints: reference numbers of every family, broken files, export and return."""

import json
import pathlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax import records
from spade_jax.policy import (
    export,
    families,
    heads,
    load,
    sampler,
    sharding,
    tensors,
    transformer,
)

HF_TINY = pathlib.Path(__file__).parent / "data" / "hf_tiny"
FAMILIES = sorted(path.name for path in HF_TINY.iterdir())


def scores_of(params, config, ids, pos, attn):
    @jax.jit
    def run(params):
        hidden = transformer.forward(params, config, ids, pos, attn)
        return heads.logits(params, config, hidden, jnp.zeros(len(ids), jnp.int32))

    return np.asarray(run(params))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_published_checkpoint_gives_the_reference_logits_and_greedy_tokens(family):
    params, config = load.load(HF_TINY / family)
    stored = np.load(HF_TINY / family / "io.npz")
    attn = stored["attn"]  # row 0 is padded on the left, row 1 on the right, row 2 is full
    found = scores_of(params, config, stored["ids"], stored["pos"], attn)
    np.testing.assert_allclose(found[attn == 1], stored["logits"][attn == 1], atol=2e-4)
    absent = min(set(range(config.vocab_size)) - set(stored["greedy"][0].tolist()))
    engine = sampler.Sampler(config, end_ids=(absent,), max_length=32, batch_buckets=(1,))
    sampling = sampler.SamplingConfig(max_tokens=16, temperature=0.0)
    prompt = stored["prompt"][0].tolist()
    reply = engine.generate(params, [prompt], [records.AGENT], [0], sampling)[0]
    assert [*prompt, *reply.ids] == stored["greedy"][0].tolist()


def test_both_spellings_of_a_configuration_give_one_model():
    new = json.loads((HF_TINY / "llama3" / "config.json").read_text())
    rope = new["rope_parameters"]
    old = {key: value for key, value in new.items() if key not in ("rope_parameters", "dtype")}
    old["rope_theta"] = rope["rope_theta"]
    old["rope_scaling"] = {key: value for key, value in rope.items() if key != "rope_theta"}
    old["torch_dtype"] = "float32"
    spelled = [families.from_hugging_face(given, "config.json") for given in (new, old)]
    assert spelled[0] == spelled[1]
    assert spelled[0].rope_scaling.kind == "llama3"
    # One of eight experts counts differently in name only.
    moe = json.loads((HF_TINY / "qwen3_moe" / "config.json").read_text())
    old = {**moe, "num_experts": moe["num_local_experts"]}
    del old["num_local_experts"]
    assert families.from_hugging_face(old, "") == families.from_hugging_face(moe, "")


@pytest.mark.parametrize(
    "name, billions",
    [
        # Parameters as the model cards state them, embeddings included.
        ("Qwen3-4B-Instruct-2507", 4.02),
        ("Qwen3-8B", 8.19),
        ("Qwen3-30B-A3B", 30.5),
        ("Qwen2.5-Coder-0.5B", 0.494),
        ("Qwen2.5-Coder-1.5B", 1.54),
        ("Qwen2.5-Coder-3B", 3.09),
        ("Qwen2.5-Coder-7B", 7.62),
        ("SmolLM2-135M", 0.1345),
    ],
)
def test_named_models_have_the_published_number_of_parameters(name, billions):
    config = families.named(name)
    shapes = jax.eval_shape(lambda key: transformer.init(config, key), jax.random.key(0))
    count = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    assert count / 1e9 == pytest.approx(billions, rel=0.006)


def test_a_sharded_tree_holds_the_same_numbers_and_is_really_cut():
    mesh = sharding.make_mesh(data=1, fsdp=2, tensor=2, expert=2)
    plain, config = load.load(HF_TINY / "qwen3_moe")
    # 97 tokens do not divide: the vocabulary stays whole in this test.
    with pytest.raises(ValueError, match="'vocab'=97 must be a multiple"):
        load.load(HF_TINY / "qwen3_moe", mesh=mesh)
    mesh = sharding.make_mesh(data=2, fsdp=2, tensor=1, expert=2)
    cut, _ = load.load(HF_TINY / "qwen3_moe", mesh=mesh)
    jax.tree.map(np.testing.assert_array_equal, plain, cut)
    gate_LXDF = cut["layers"]["mlp"]["gate_XDF"]
    assert gate_LXDF.sharding.shard_shape(gate_LXDF.shape) == (3, 2, 16, 16)


def test_experts_spread_over_the_mesh_give_the_same_logits_and_gradients():
    mesh = sharding.make_mesh(data=2, fsdp=2, tensor=1, expert=2)
    plain, config = load.load(HF_TINY / "qwen3_moe")
    cut, _ = load.load(HF_TINY / "qwen3_moe", mesh=mesh)
    ids = jnp.asarray(np.random.default_rng(0).integers(0, 97, (4, 6)))
    places = jnp.broadcast_to(jnp.arange(6), ids.shape)

    def loss(params):
        hidden = transformer.forward(params, config, ids, places, jnp.ones_like(ids))
        logps, _ = heads.token_logps(params, config, hidden, ids, jnp.zeros(4, jnp.int32))
        return jnp.mean(logps)

    alone, alone_gradient = jax.jit(jax.value_and_grad(loss))(plain)
    by_partitioner = jax.jit(loss)(cut)
    with jax.set_mesh(mesh):
        lowered = jax.jit(jax.value_and_grad(loss)).lower(cut)
        by_expert, gradient = lowered.compile()(cut)
    assert "manual" in lowered.as_text()  # each part of the axis works on its own experts
    np.testing.assert_allclose([by_partitioner, by_expert], [alone] * 2, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5 + 1e-4 * float(jnp.abs(a).max())),
        alone_gradient,
        gradient,
    )


def test_expert_loads_count_real_tokens_only():
    params, config = load.load(HF_TINY / "qwen3_moe")
    stored = np.load(HF_TINY / "qwen3_moe" / "io.npz")
    loads_LX = jax.jit(transformer.expert_loads, static_argnums=1)(
        params, config, stored["ids"], stored["pos"], stored["attn"]
    )
    np.testing.assert_allclose(loads_LX.mean(1), 1.0, rtol=1e-6)
    # Every load is a count over 27 real tokens with 2 experts each, relative to 27 * 2 / 4.
    counts_LX = np.asarray(loads_LX) * stored["attn"].sum() * 2 / 4
    np.testing.assert_allclose(counts_LX, np.round(counts_LX), atol=1e-4)
    with pytest.raises(ValueError, match="experts=0"):
        transformer.expert_loads(params, families.named("Qwen3-8B"), *[stored["ids"]] * 3)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_exported_directory_is_read_back_unchanged(family, tmp_path):
    params, config = load.load(HF_TINY / family)
    export.write(tmp_path / "out", params, config, like=HF_TINY / family, file_bytes=30_000)
    again, same = load.load(tmp_path / "out")
    assert same == config
    jax.tree.map(np.testing.assert_array_equal, params, again)
    assert len(list((tmp_path / "out").glob("model-*.safetensors"))) > 2
    original = tensors.scan(HF_TINY / family)
    written = tensors.scan(tmp_path / "out")
    assert written.keys() == original.keys()
    assert all(written[n].read().tobytes() == original[n].read().tobytes() for n in original)
    with pytest.raises(FileExistsError, match="already holds a model"):
        export.write(tmp_path / "out", params, config)


def test_a_separate_head_starts_as_the_shared_one_and_exports_per_role(tmp_path):
    params, config = load.load(HF_TINY / "qwen2", role_head="separate")
    roles_ADV = params["head"]["roles_ADV"]
    np.testing.assert_array_equal(roles_ADV[0], params["embed"].T)
    np.testing.assert_array_equal(roles_ADV[1], params["embed"].T)
    params["head"]["roles_ADV"] = roles_ADV.at[records.AGENT].multiply(2.0)
    export.write(tmp_path / "agent", params, config, role=records.AGENT)
    alone, described = load.load(tmp_path / "agent")
    assert not described.tied_embeddings
    np.testing.assert_array_equal(alone["head"]["output_DV"], 2 * params["embed"].T)
    with pytest.raises(ValueError, match="which role"):
        export.write(tmp_path / "none", params, config)


def test_a_lowrank_head_is_a_lora_adapter_of_lm_head(tmp_path):
    params, config = load.load(
        HF_TINY / "llama", role_head="lowrank", role_rank=3, key=jax.random.key(0)
    )
    drawn = jax.random.normal(jax.random.key(1), params["head"]["lowrank_out"].shape)
    params["head"]["lowrank_out"] = drawn
    export.write_adapter(tmp_path, params, config, records.AGENT, "base")
    described = json.loads((tmp_path / "adapter_config.json").read_text())
    stored = tensors.scan_file(tmp_path / "adapter_model.safetensors")
    a_RD = stored["base_model.model.lm_head.lora_A.weight"].read()
    b_VR = stored["base_model.model.lm_head.lora_B.weight"].read()
    hidden = jax.random.normal(jax.random.key(2), (1, config.width))
    plain = hidden @ params["head"]["output_DV"]
    adapted = plain + (hidden @ a_RD.T) @ b_VR.T * described["lora_alpha"] / described["r"]
    scores = heads.logits(params, config, hidden, jnp.array([records.AGENT]))
    np.testing.assert_allclose(scores, adapted, atol=1e-4)


def broken(tmp_path, family="llama"):
    shutil.copytree(HF_TINY / family, tmp_path / "broken")
    return tmp_path / "broken"


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"model_type": "mamba"}, "config.json: model_type='mamba' is not supported"),
        ({"hidden_act": "relu"}, "hidden_act='relu'"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type='dynamic'"),
        ({"mlp_bias": True}, "mlp_bias=True"),
        ({"intermediate_size": 64}, r"mlp.gate_proj.weight has shape \(48, 32\)"),
        ({"num_hidden_layers": 4}, "lacks tensor model.layers.3"),
        ({"num_hidden_layers": 2}, "tensor model.layers.2.* has no place"),
    ],
)
def test_a_configuration_that_does_not_fit_is_one_clear_error(changes, words, tmp_path):
    folder = broken(tmp_path)
    change_config(folder, **changes)
    with pytest.raises(load.CheckpointError, match=words):
        load.load(folder)


def test_damaged_files_are_named_with_their_tensor(tmp_path):
    folder = broken(tmp_path)
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with pytest.raises(load.CheckpointError, match="model.safetensors is cut: tensor model.norm"):
        load.load(folder)
    path.write_bytes(whole[:50])
    with pytest.raises(load.CheckpointError, match="model.safetensors is no safetensors file"):
        load.load(folder)
    spoiled = bytearray(whole)
    spoiled[-4:] = np.float32(np.nan).tobytes()
    path.write_bytes(spoiled)
    with pytest.raises(load.CheckpointError, match="safetensors: tensor model.norm.* not finite"):
        load.load(folder)
    path.unlink()
    with pytest.raises(load.CheckpointError, match="has neither model.safetensors nor"):
        load.load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(load.CheckpointError, match="config.json is missing"):
        load.load(folder)
    with pytest.raises(FileNotFoundError, match="absent"):
        load.load(tmp_path / "absent")


def test_a_missing_shard_is_named_with_a_tensor_it_holds(tmp_path):
    params, config = load.load(HF_TINY / "llama")
    export.write(tmp_path / "out", params, config, file_bytes=30_000)
    shard = sorted((tmp_path / "out").glob("model-*"))[1]
    shard.unlink()
    with pytest.raises(load.CheckpointError, match=f"{shard.name} is missing: .* tensor model"):
        load.load(tmp_path / "out")
