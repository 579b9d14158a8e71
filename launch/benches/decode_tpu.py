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
from jax.experimental import topologies

from launch import chips, chunk, cost, hlo
from spade_jax.policy import families, sharding

QWEN3_8B = dataclasses.replace(
    families.named("Qwen3-8B"), compute_dtype="bfloat16", param_dtype="bfloat16"
)
_PLACES = 4096
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
    config = dataclasses.replace(QWEN3_8B, layers=layers)
    given = chunk.arguments(config, mesh, rows, _PLACES, cache_bits=bits)
    text = chunk.lower(config, given).compile().as_text()
    module = hlo.parse(text)
    once, twice = (cost.total(cost.works(module, n), "memory_bytes") for n in (1, 2))
    return twice - once  # what a further step of the loop adds


def _least(layers: int, rows: int, bits: int) -> float:
    """Count the bytes that a step cannot avoid, on all chips: weights once, the cache once."""
    config = QWEN3_8B
    width, channels = config.width, config.head_dim
    attention = width * channels * (2 * config.heads + 2 * config.kv_heads)
    matrices = layers * (attention + 3 * width * config.mlp_width) + width * config.vocab_size
    vector = channels * bits // 8 + (4 if bits == 8 else 0)  # with its scale
    return 2 * matrices + 2 * layers * rows * _PLACES * config.kv_heads * vector
