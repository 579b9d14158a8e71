"""A digest sees every bit and its place, and does not see the mesh."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax import digests

TREE = {
    "weights": jnp.arange(12, dtype=jnp.float32).reshape(3, 4), "half": jnp.ones(5, jnp.bfloat16),
    "count": jnp.int32(7), "on": jnp.array([True, False]), "none": None,
}  # fmt: skip


def changed(name, value):
    return digests.differing(digests.arrays(TREE), digests.arrays(TREE | {name: value}))


def test_equal_arrays_have_equal_digests_by_path():
    found = digests.arrays(TREE)
    assert sorted(found) == ["count", "half", "on", "weights"]
    assert found == digests.arrays(jax.tree.map(jnp.copy, TREE))
    assert found["weights"].startswith("float32[3, 4]:")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weights", TREE["weights"].at[2, 3].set(np.nextafter(np.float32(11), np.float32(12)))),
        ("weights", TREE["weights"][::-1]),
        ("weights", TREE["weights"].at[0, 0].set(-0.0)),
        ("weights", TREE["weights"].reshape(4, 3)),
        ("half", jnp.ones(5, jnp.float16)),
        ("half", jnp.ones(5, jnp.bfloat16).at[4].set(1.0078125)),
        ("count", jnp.int32(8)),
        ("on", jnp.array([False, True])),
        ("none", jnp.zeros(1)),
    ],
)
def test_any_change_is_seen(name, value):
    assert changed(name, value) == [name]


def test_two_columns_exchanged_are_seen_and_equal_ones_are_not():
    swapped = TREE["weights"][:, jnp.array([1, 0, 2, 3])]
    assert changed("weights", swapped) == ["weights"] and changed("weights", TREE["weights"]) == []


def test_a_digest_is_the_same_on_every_mesh():
    numbers = jnp.linspace(-1, 1, 64).reshape(8, 8)
    mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("b", "a"))
    assert digests.arrays([numbers]) == digests.arrays([jax.device_put(numbers, split)])


def test_values_are_equal_as_json_is():
    assert digests.values({"b": (1, 2.5), "a": {3: None}}) == digests.values(
        {"a": {"3": None}, "b": [1, 2.5]}
    )
    assert digests.values([1.0]) != digests.values([1]) and digests.values([float("nan")])


def test_long_texts_and_keys_that_are_no_text_are_told_apart():
    text = "x" * 5000
    whole = {"column": text, "slots": [[1, {2: text}], (3, None)]}
    assert digests.values(whole) == digests.values(json.loads(json.dumps(whole)))
    for other in (text + "x", text[:-1] + "y", text[:-1]):
        assert digests.values({"column": other}) != digests.values({"column": text})
    assert digests.values([10, [2]]) != digests.values([10, [3]])
    assert digests.values({10: 1, 9: 2}) == digests.values({"9": 2, "10": 1})
