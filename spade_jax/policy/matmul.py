"""Products of two arrays: multiplied in their dtype, summed in float32, rounded once.

Comes in: operands in the compute dtype. Goes out: their product, and gradients made the same way.
This is what matrix units do of themselves. XLA's CPU backend has to be asked: for a bfloat16 result
it converts the operands and multiplies in float32. Elsewhere a float32 result is not asked for,
since partial sums over a mesh would then travel in float32. Gradients are written out because JAX
would multiply the float32 cotangent of a float32 result with a bfloat16 operand.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from spade_jax.policy import platforms


def einsum(axes: str, left: jax.Array, right: jax.Array, *, out: str | None = None) -> jax.Array:
    """Multiply two arrays as `jnp.einsum` does.

    Args:
        axes: like "BTD,DF->BTF"; no letter twice in one operand, each letter in two of the three
            places; "..." may lead the left operand and the result.
        left: first operand; its dtype is the one that is multiplied in.
        right: second operand, cast to that dtype.
        out: dtype of the result; that of `left` by default.
    Raises:
        ValueError: a letter that stands in one place only.
    """
    sources, result = axes.split("->")
    first, second = sources.split(",")
    if first.startswith("..."):
        spare = "abcdefgh"[: left.ndim - len(first) + 3]
        first, result = first.replace("...", spare), result.replace("...", spare)
    for letter in set(first + second + result):
        if sum(letter in place for place in (first, second, result)) < 2:
            raise ValueError(f"einsum({axes!r}): {letter} stands in one place only.")
    precision = jax.config.jax_default_matmul_precision
    dtype = jnp.dtype(out or left.dtype).name
    return _product(first, second, result, dtype, precision, left, right.astype(left.dtype))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3, 4))
def _product(first, second, result, dtype, precision, left, right):
    axes, summed = f"{first},{second}->{result}", jnp.dtype(dtype)
    if platforms.current() == "cpu":
        summed = jnp.promote_types(left.dtype, jnp.float32)
    product = jnp.einsum(axes, left, right, precision=precision, preferred_element_type=summed)
    return product.astype(dtype)


def _forward(first, second, result, dtype, precision, left, right):
    return _product(first, second, result, dtype, precision, left, right), (left, right)


def _backward(first, second, result, dtype, precision, kept, change):
    # The precision of a trace around the forward pass no longer holds here, so it is handed on.
    left, right = kept
    change = change.astype(left.dtype)
    d_left = _product(result, second, first, left.dtype.name, precision, change, right)
    d_right = _product(first, result, second, right.dtype.name, precision, left, change)
    return d_left, d_right


_product.defvjp(_forward, _backward)
