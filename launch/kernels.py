"""What a custom call costs: Pallas kernels by their estimate or a stated model, XLA's helpers.

A Pallas kernel is a `tpu_custom_call`. The operations and bytes of one run are those of the
`cost_estimate` that its author gave to `pallas_call`, which the compiled text carries. The splash
attention kernel gives none and is modelled, see `_splash`; its traffic is its operands and results,
and beside them ("streamed_bytes") the blocks that it fetches again and again.
Any other kernel is told as not counted, never guessed.
"""

from __future__ import annotations

import math
import re

from launch import hlo

# Views and bookkeeping that the TPU compiler spells as custom calls.
_FREE = frozenset(
    "AllocateBuffer AssumeGatherIndicesInBound AsyncCollectiveStart AsyncCollectiveDone "
    "ConcatBitcast GatherScatterIndicesBitpacked Sharding SPMDFullToShardShape "
    "SPMDShardToFullShape MoveToHost MoveToDevice PinToDevice annotate_device_placement "
    "BarrierStart BarrierDone".split()
)
_SPLASH = re.compile(r"splash_m[hq]a_(fwd|dkv|dq)")
_PRODUCTS = {"fwd": 2, "dkv": 4, "dq": 3}  # of [queries, keys] blocks with channels


def count(computation: hlo.Computation, instruction: hlo.Instruction) -> dict:
    """Give the counts of one run: fields of `cost.Work`, and streamed_bytes."""
    target = instruction.word("custom_call_target")
    if target in _FREE:
        return {"memory_bytes": 0.0}
    if target != "tpu_custom_call":
        return {"unknown": f"custom call {target}"}
    estimate = {
        name: float(value)
        for name, value in re.findall(
            r'"(flops|transcendentals|bytes_accessed)":\s*"?(\d+)', instruction.attributes
        )
    }
    if "flops" in estimate:
        return {
            "matrix_flops": estimate["flops"],
            "transcendentals": estimate.get("transcendentals", 0.0),
            "memory_bytes": estimate.get("bytes_accessed", 0.0),
        }
    kind = _SPLASH.match(instruction.name)
    if kind is None:
        return {"unknown": f"Pallas kernel {instruction.name} without a cost estimate"}
    return _splash(computation, instruction, _PRODUCTS[kind.group(1)])


def _splash(computation: hlo.Computation, instruction: hlo.Instruction, products: int) -> dict:
    """Count the products and the streamed bytes of causal splash attention.

    Of n by n blocks those on and below the diagonal run, whole: (n + 1) / 2n of all pairs; blocks
    of other segments are not skipped. For each of them, in each head, two blocks are fetched anew:
    keys and values, or queries and their cotangents where keys stay ("dkv"). The first operand is
    the kernel's table of blocks [.., n, n], the first of three axes that is no integer are the
    queries [.., heads, tokens, channels].
    Forward: scores and values. Keys and values: scores, both gradients, and that of the weights.
    Queries: scores, the gradient of the weights, that of the queries.
    Source: jax/experimental/pallas/ops/tpu/splash_attention/splash_attention_kernel.py.
    """
    operands = [computation[name].array for name in instruction.operands]
    blocks = operands[0].sizes[-1]
    queries = next(a for a in operands if len(a.sizes) >= 3 and "f" in a.dtype)
    *heads, tokens, channels = queries.sizes
    pairs = tokens * tokens * (blocks + 1) / (2 * blocks)
    fetched = queries.bytes * (blocks + 1) / 2  # of one array, a block for every pair of blocks
    return {
        "matrix_flops": 2.0 * products * pairs * channels * math.prod(heads),
        "streamed_bytes": 2 * fetched,
    }
