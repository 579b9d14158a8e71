"""What a custom call costs: Pallas kernels by their own estimate, XLA's helpers by their meaning.

A Pallas kernel is a `tpu_custom_call`. The operations and bytes of one run are those of the
`cost_estimate` that its author gave to `pallas_call`, which the compiled text carries in
`backend_config`. Our kernels and JAX's flash and splash attention give one; a kernel without one is
told as not counted, never guessed.
"""

from __future__ import annotations

import re

from launch import hlo

_KERNELS = ("tpu_custom_call", "mosaic")
# Views and bookkeeping that the TPU compiler spells as custom calls.
_FREE = frozenset(
    "AllocateBuffer AssumeGatherIndicesInBound AsyncCollectiveStart AsyncCollectiveDone "
    "ConcatBitcast GatherScatterIndicesBitpacked Sharding SPMDFullToShardShape "
    "SPMDShardToFullShape MoveToHost MoveToDevice PinToDevice annotate_device_placement "
    "BarrierStart BarrierDone".split()
)


def count(computation: hlo.Computation, instruction: hlo.Instruction) -> dict:
    """Give the counts of one run, as fields of `cost.Work`."""
    target = instruction.word("custom_call_target")
    if target in _FREE:
        return {"memory_bytes": 0.0}
    if target not in _KERNELS:
        return {"unknown": f"custom call {target}"}
    estimate = {
        name: float(value)
        for name, value in re.findall(
            r'"(flops|transcendentals|bytes_accessed)":\s*"?(\d+)', instruction.attributes
        )
    }
    if "flops" not in estimate:
        return {"unknown": "Pallas kernel without a cost estimate"}
    return {
        "matrix_flops": estimate["flops"],
        "transcendentals": estimate.get("transcendentals", 0.0),
        "memory_bytes": estimate.get("bytes_accessed", 0.0),
    }
