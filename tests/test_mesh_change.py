"""A run goes on with another mesh: what was saved is laid out anew, and goes on equal to rounding.

With scripted roles and all else real; `experiments/mesh_change_study.py` does it with a policy that
samples, through the door.
"""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from experiments import scripted_study
from spade_jax import archive, checkpoint, claim, loop, machine, pool, settings
from spade_jax.policy import tokenizer, transformer

FIRST = settings.MeshConfig(data=2, fsdp=4)
SECOND = settings.MeshConfig(data=2, fsdp=2, tensor=2)


def begin(mesh):
    config = scripted_study.run_config(100, mesh=mesh)
    words = tokenizer.Tokenizer.load(config.policy.tokenizer)
    two_heads = dataclasses.replace(scripted_study.MODEL, heads=2, kv_heads=2)  # one for each part
    model = machine.fit_vocabulary(two_heads, words)
    agent = functools.partial(scripted_study.agent, skill=lambda: 0.0)
    world = scripted_study.World(config, words, model, scripted_study.designer, agent)
    return config, loop.start(config, world, transformer.init(model, jax.random.key(0))), world


def layout(params):
    return params["embed"].sharding.mesh.shape


def test_a_run_that_goes_on_with_another_mesh_says_so_and_is_equal_to_rounding(tmp_path):
    config, progress, world = begin(FIRST)
    programs = tmp_path / "programs.jsonl"
    progress.pool = pool.empty(config.pool, archive.Archive(programs))
    claim.take(tmp_path, config)
    loop.iterate(progress, world, config)
    store = checkpoint.Store(tmp_path, checkpoint.CheckpointConfig())
    store.save(1, progress.train, loop.to_host(progress))
    expected = loop.iterate(progress, world, config)

    config, other, world = begin(SECOND)
    assert claim.compare(tmp_path, config) == ["mesh.fsdp", "mesh.tensor"]
    train, host = store.restore(1, other.train)
    other = loop.from_host(train, host, programs)
    assert layout(other.train.params) == {"data": 2, "fsdp": 2, "tensor": 2, "expert": 1}
    found = loop.iterate(other, world, config)
    store.close()

    assert layout(progress.train.params) != layout(other.train.params)
    assert found.metrics.keys() == expected.metrics.keys()
    for name, value in found.metrics.items():
        if not name.startswith("time/"):
            assert value == pytest.approx(expected.metrics[name], rel=1e-4, abs=1e-6, nan_ok=True)
    both = jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        jax.device_get(other.train), jax.device_get(progress.train),
    )  # fmt: skip
    assert jax.tree.leaves(both) == []
