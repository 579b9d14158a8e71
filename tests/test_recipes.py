"""The recipes build, have the published sizes, and compile over a mesh when they are cut small."""

import importlib
import pathlib

import jax
import ml_collections
import pytest

from experiments import paper
from launch import abstract, aot, chips, chunk
from spade_jax import config, settings
from spade_jax.policy import sharding, transformer

ROOT = pathlib.Path(__file__).resolve().parent.parent / "experiments"
RECIPES = sorted(ROOT.glob("games_*.py")) + sorted(ROOT.glob("tool_use_*.py"))
GRID = tuple((i // 4, i % 4) for i in range(8))  # where the eight devices would stand
ABLATIONS = [
    path for path in sorted((ROOT / "paper_ablations").glob("*.py")) if path.stem != "__init__"
]


def load(path):
    name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
    return importlib.import_module(name).get_config()


def shrunk(run):
    """Cut a recipe to sizes that compile in seconds; all that it switches on stays on."""
    run = ml_collections.ConfigDict(run)
    experts = 8 if run.policy.model.experts else 0
    run.policy.model.update(
        vocab_size=512, layers=2, width=64, heads=4, kv_heads=2, head_dim=16, mlp_width=64,
        experts=experts, experts_per_token=min(experts, 2), compute_dtype="float32",
    )  # fmt: skip
    run.batch.row_tokens = run.rollout.context_tokens = 128
    run.design.max_tokens = run.rollout.max_tokens = run.screen.max_tokens = 64
    run.mesh.update(data=1, fsdp=4, tensor=2)
    run.learn.attention = "blockwise"  # the kernel compiles for TPUs only
    run.learn.attention_block = 64
    run.learn.chunk_tokens = 64
    return config.build(settings.RunConfig, run)


@pytest.mark.parametrize("path", RECIPES + ABLATIONS, ids=lambda path: path.stem)
def test_every_recipe_builds(path):
    built = config.build(settings.RunConfig, load(path))
    assert built.iterations == 400 and built.policy.model in paper.MODELS.values()


@pytest.mark.parametrize("path", ABLATIONS, ids=lambda path: path.stem)
def test_every_ablation_differs_from_the_recipe(path):
    assert load(path).to_json() != paper.games("30b_a3b").to_json()


@pytest.mark.parametrize("size", sorted(paper.MODELS))
def test_models_have_the_published_numbers_of_parameters(size):
    model = paper.MODELS[size]
    shapes = jax.eval_shape(lambda key: transformer.init(model, key), jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == paper.PARAMETERS[size]


@pytest.mark.parametrize("name", ["games_qwen3_4b", "games_qwen3_30b_a3b", "tool_use_qwen3_8b"])
def test_update_of_a_recipe_lowers_over_a_mesh(name):
    _, state = lower(name)
    moments = abstract.device_bytes(state.opt_state)
    assert moments >= 2 * abstract.device_bytes(state.params)  # both, in float32
    assert (state.reference is not None) == (name == "tool_use_qwen3_8b")


def test_update_of_a_recipe_compiles_and_its_report_adds_up():
    built = shrunk(load(ROOT / "games_qwen3_8b.py"))
    where = chips.Slice(chip=chips.CHIPS["v5e"], shape=(2, 4), coordinates=GRID)
    mesh = sharding.make_mesh(fsdp=4, tensor=2)
    report, _, works = aot.update(built, where, mesh, rows=4)
    assert report.fits and report.largest_rows > 4
    assert sum(report.memory.values()) > report.memory["optimiser"] > 0
    # Two layers recomputed, and the pass of the reference, which the model's count holds.
    assert 1 < report.roofline.matrix_flops / report.model_flops < 2
    assert report.compiler_flops < report.roofline.matrix_flops  # loop bodies once
    assert report.roofline.exchanges["all-gather"].wire_bytes > 0
    assert not report.roofline.unknown
    assert "bound by" in "\n".join(aot.lines(report))


def test_decode_chunk_of_a_recipe_compiles_and_reads_weights_and_cache():
    built = shrunk(load(ROOT / "games_qwen3_8b.py"))
    where = chips.Slice(chip=chips.CHIPS["v5e"], shape=(2, 4), coordinates=GRID)
    mesh = sharding.make_mesh(fsdp=4, tensor=2)
    report = chunk.measure(built, where, mesh)
    # 24 environments of 8 plays and 4 with a hint are 288, more than the recipe's 8 at a time;
    # eight devices of one host share 2 parts of the two key-value heads.
    assert (report.rows, report.places, report.devices, report.parts) == (8, 128, 8, 2)
    # Keys and values: 8 rows, 128 tokens, 2 layers, one of two heads, 16 channels of a byte each
    # and a scale in float32.
    assert report.memory["cache"] == 2 * 8 * 128 * 2 * 1 * (16 + 4)
    assert report.fits and report.roofline.memory_bytes > report.least_bytes / 2
    assert "tokens/s" in "\n".join(chunk.lines(report))


def lower(name):
    mesh = sharding.make_mesh(fsdp=4, tensor=2)
    return abstract.lower_update(shrunk(load(ROOT / f"{name}.py")), mesh, rows=4)
