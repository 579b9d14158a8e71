"""What a step of decoding reads on a TPU host, ahead of time: no TPU is needed, only its compiler.

    python -m launch.bench decode_tpu --only=v6e

The decode program for Qwen3-8B in bfloat16 is compiled for eight chips of one host, cut along
`tensor`: one key-value head, and an eighth of every matrix and of the vocabulary, on each. Traffic
is counted from the compiled program by `launch.cost`, and held against what cannot be avoided: the
weights once, and the cache of every sequence, full at 4,096 tokens, once. Layers are alike, so
programs of 2 and of 4 layers are compiled and 36 follow by a straight line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jax.experimental import topologies

from launch import chips, cost, hlo
from spade_jax.policy import cache, decode, draw, families, sharding, transformer

QWEN3_8B = dataclasses.replace(
    families.named("Qwen3-8B"), compute_dtype="bfloat16", param_dtype="bfloat16"
)
_PLACES, _STEPS = 4096, 32
_HOSTS = ("v6e:2x4", "v5e:2x4")


def measure(only: str) -> Iterator[dict]:
    """Yield traffic, its ratio to the unavoidable, and what follows for the speed."""
    for host in _HOSTS:
        for rows in (64, 256):
            for bits in (16, 8):
                name = f"{host} rows {rows} cache {bits} bits"
                if only in name:
                    yield {"name": name, **_measure(host, rows, bits)}


def _measure(host: str, rows: int, bits: int) -> dict:
    chip, _ = chips.parse(host)
    try:
        devices = topologies.get_topology_desc(platform="tpu", topology_name=host).devices
    except Exception as error:  # the plugin raises its own kinds
        return {"value": "not measured", "unit": "", "against": f"no TPU compiler: {error}"[:200]}
    mesh = sharding.make_mesh(tensor=len(devices), devices=devices)
    few, more = 2, 4
    low, high = (step_bytes(mesh, rows, bits, layers) for layers in (few, more))
    layers = QWEN3_8B.layers
    total = low + (high - low) / (more - few) * (layers - few)
    least = _least(layers, rows, bits) / mesh.size
    seconds = total / chip.memory_rate
    return {
        "value": total / 1e9,
        "unit": "GB/step/chip",
        "ratio": round(total / least, 3),
        "against": f"unavoidable {least / 1e9:.2f} GB",
        "target": 1.15,
        "roofline": f"{rows / seconds / mesh.size:.0f} tokens/s/chip",
        "fits": least + 1e9 < chip.memory_bytes,
    }


def step_bytes(mesh: jax.sharding.Mesh, rows: int, bits: int, layers: int) -> float:
    """Compile the program and count the traffic of one step on one chip."""
    text = lower(mesh, rows, bits, layers).compile().as_text()
    module = hlo.parse(text)
    once, twice = (cost.total(cost.works(module, n), "memory_bytes") for n in (1, 2))
    return twice - once  # what a further step of the loop adds


def lower(mesh: jax.sharding.Mesh, rows: int, bits: int, layers: int) -> jax.stages.Lowered:
    """Trace the decode program for described devices."""
    config = dataclasses.replace(QWEN3_8B, layers=layers)
    whole = sharding.replicated(mesh)

    def place(tree, where):
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), tree
        )

    params = jax.eval_shape(lambda key: transformer.init(config, key), jax.random.key(0))
    layout = sharding.param_shardings(config, mesh)
    params = jax.tree.map(
        lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
        params,
        layout,
    )
    one = {
        path: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype, sharding=_without_layers(leaf))
        for path, leaf in jax.tree_util.tree_leaves_with_path(params["layers"])
    }
    tree = jax.tree_util.tree_structure(params["layers"])
    layer = jax.tree_util.tree_unflatten(tree, list(one.values()))
    ready = {**params, "layers": [layer] * layers}
    past = jax.eval_shape(lambda: cache.empty(config, rows, _PLACES, bits))
    whole_B = jax.ShapeDtypeStruct((rows,), jnp.int32)
    float_B = jax.ShapeDtypeStruct((rows,), jnp.float32)
    state = decode.Rows(
        tokens_B=whole_B,
        lengths_B=whole_B,
        steps_B=whole_B,
        limits_B=whole_B,
        roles_B=whole_B,
        seeds_B=jax.ShapeDtypeStruct((rows,), jnp.uint32),
        shape=draw.Shape(temperatures_B=float_B, top_k_B=whole_B, top_p_B=float_B),
    )
    ends, stop = jax.ShapeDtypeStruct((2,), jnp.int32), jax.ShapeDtypeStruct((), jnp.int32)
    return decode.advance.lower(
        ready,
        config,
        place(past, sharding.cache_sharding(params)),
        place(state, whole),
        place(ends, whole),
        place(stop, whole),
        steps=_STEPS,
        truncated=False,
    )


def _without_layers(leaf) -> jax.sharding.NamedSharding:
    """Cut a layer's matrix as the stack of all layers is cut."""
    spec = leaf.sharding.spec
    return jax.sharding.NamedSharding(leaf.sharding.mesh, type(spec)(*spec[1:]))


def _least(layers: int, rows: int, bits: int) -> float:
    """Count the bytes that a step cannot avoid, on all chips: weights once, the cache once."""
    config = QWEN3_8B
    width, channels = config.width, config.head_dim
    attention = width * channels * (2 * config.heads + 2 * config.kv_heads)
    matrices = layers * (attention + 3 * width * config.mlp_width) + width * config.vocab_size
    vector = channels * bits // 8 + (4 if bits == 8 else 0)  # with its scale
    return 2 * matrices + 2 * layers * rows * _PLACES * config.kv_heads * vector
