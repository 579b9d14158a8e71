"""The jitted update does not depend on the mesh, on microbatches, on rows or on their packing."""

import dataclasses

import jax
import numpy as np
import pytest
import small_update as small

from spade_jax import batch
from spade_jax.policy import sharding


@pytest.fixture(scope="module")
def base():
    state, report = small.step(
        small.start(), small.make(*small.iteration(), fresh={0: 0, 1: 0, 2: 0})
    )
    return jax.device_get(state), report


@pytest.mark.parametrize(
    "sizes", [{"fsdp": 8}, {"fsdp": 4, "tensor": 2}, {"data": 2, "fsdp": 2, "tensor": 2}]
)
def test_sharded_equals_unsharded(base, sizes):
    mesh = small.mesh_of(**sizes)
    made = small.make(*small.iteration(), mesh=mesh, fresh={0: 0, 1: 0, 2: 0})
    state, report = small.step(small.start(mesh=mesh), made, mesh=mesh)
    small.same(state, base[0])
    small.same_report(report, base[1])
    for leaf, place in zip(
        jax.tree.leaves(state.params),
        jax.tree.leaves(sharding.param_shardings(small.MODEL, mesh)),
        strict=True,
    ):
        assert leaf.sharding.is_equivalent_to(place, leaf.ndim)


def test_experts_cut_over_the_mesh_equal_one_device():
    model = dataclasses.replace(small.MODEL, experts=4, experts_per_token=2)
    mesh = small.mesh_of(fsdp=2, expert=2)
    whole, expected = small.step(
        small.start(model=model),
        small.make(*small.iteration(), fresh={0: 0, 1: 0, 2: 0}),
        model=model,
    )
    made = small.make(*small.iteration(), mesh=mesh, fresh={0: 0, 1: 0, 2: 0})
    state, report = small.step(small.start(mesh=mesh, model=model), made, mesh=mesh, model=model)
    small.same(state.params, whole.params)
    small.same_report(report, expected)


@pytest.mark.parametrize("microbatches", [4])
def test_result_does_not_depend_on_microbatches(base, microbatches):
    config = dataclasses.replace(small.CONFIG, microbatches=microbatches)
    state, report = small.step(
        small.start(config), small.make(*small.iteration(), fresh={0: 0, 1: 0, 2: 0}), config
    )
    small.same(state, base[0])
    small.same_report(report, base[1])


def test_permuting_rows_changes_nothing(base):
    made = small.make(*small.iteration(), fresh={0: 0, 1: 0, 2: 0}).batch
    order = np.random.default_rng(1).permutation(made.tokens_BT.shape[0])
    shuffled = dataclasses.replace(
        made,
        **{
            field.name: getattr(made, field.name)[order]
            for field in dataclasses.fields(made)
            if field.name.endswith("_BT")
        },
    )
    assert not np.array_equal(made.tokens_BT, shuffled.tokens_BT)
    state, report = small.step(small.start(), shuffled)
    small.same(state, base[0])
    small.same_report(report, base[1])


def test_packing_changes_nothing(base):
    # 11 tokens hold any sequence here and seldom two: nearly one sequence a row
    rows = batch.BatchConfig(row_tokens=11, rows_multiple=28)
    state, report = small.step(
        small.start(), small.make(*small.iteration(), rows=rows, fresh={0: 0, 1: 0, 2: 0})
    )
    small.same(state, base[0])
    small.same_report(report, base[1])


def test_leaving_out_flat_groups_changes_nothing_but_what_is_measured(base):
    rows = dataclasses.replace(small.ROWS, drop_flat_groups=True)
    plays, credits = small.iteration()
    flat = {(0, 1), (2, 0)}
    plays = [
        dataclasses.replace(e, value=1.0) if (e.environment, e.seed_index) in flat else e
        for e in plays
    ]
    whole, report = small.step(small.start(), small.make(plays, credits, fresh={0: 0, 1: 0, 2: 0}))
    made = small.make(plays, credits, rows=rows, fresh={0: 0, 1: 0, 2: 0})
    assert made.counts["masked_no_spread"] >= 8
    left, left_report = small.step(small.start(), made)
    small.same(left, whole)
    for name in ("loss", "gradient_norm", "advantage_rms_2", "agent_advantage_NSG"):
        np.testing.assert_allclose(left_report[name], report[name], rtol=1e-4, atol=1e-6)
