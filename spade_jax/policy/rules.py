"""From words for axes to mesh axes: the only file with a PartitionSpec."""

from __future__ import annotations

import jax

MESH_AXES = ("data", "fsdp", "tensor", "expert")
EXPERT = "expert"

# Word -> mesh axis, axes, or None for a copy on every device.
RULES = {
    "batch": ("data", "fsdp"),
    "embed": "fsdp",
    "heads": "tensor",
    "kv_heads": "tensor",
    "mlp": "tensor",
    "vocab": "tensor",
    "experts": EXPERT,
    "rows": None,  # of a cache: they are read and written one at a time
    "layers": None,
    "stream": "tensor",  # tokens of the residual stream between layers
    "width": None,  # "embed" of weights that were gathered
    "tokens": None,
    "channels": None,
    "norm": None,
    "roles": None,
    "rank": None,
}


def spec(*words: str) -> jax.sharding.PartitionSpec:
    """Map the words of an array's first axes; further axes are not cut."""
    return jax.sharding.PartitionSpec(*(RULES[word] for word in words))


def part_spec(words: tuple[str, ...], axes: tuple[str, ...]) -> jax.sharding.PartitionSpec:
    """Map words to those of the given mesh axes only, for code that runs on one part of them."""
    names = [RULES[word] for word in words]
    kept = [(name,) if isinstance(name, str) else name or () for name in names]
    return jax.sharding.PartitionSpec(
        *(tuple(n for n in group if n in axes) or None for group in kept)
    )
