"""Keys and values of sequences: rows of places, read, written and copied.

A row holds one sequence; the token at position p lies at place p, so a prefix of a row is the cache
of a prefix of its tokens, and rows that start alike can be copied. One array per layer: a layer
that reads its own array copies nothing, where a slice of a stacked one is copied at every step.
Optionally 8-bit: each key and value vector of a head is stored as whole numbers times one scale.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp

from spade_jax.policy import transformer


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Cache:
    """N rows of W places; a tuple has one array per layer."""

    keys_L: tuple[jax.Array, ...]  # NKCW: products over few rows are faster with places last
    values_L: tuple[jax.Array, ...]  # NKWC
    key_scales_L: tuple[jax.Array, ...] = ()  # NKW float32 where the numbers are 8-bit, else empty
    value_scales_L: tuple[jax.Array, ...] = ()

    @property
    def rows(self) -> int:
        """Count the rows, N."""
        return self.keys_L[0].shape[0]

    @property
    def places(self) -> int:
        """Count the places of a row, W."""
        return self.keys_L[0].shape[-1]


# Axis of the places in each field.
_PLACES = {"keys_L": 3, "values_L": 2, "key_scales_L": 2, "value_scales_L": 2}


def empty(
    config: transformer.ModelConfig,
    rows: int,
    places: int,
    bits: int,
    where: jax.sharding.Sharding | None = None,
) -> Cache:
    """Make rows without content.

    Args:
        config: the model's.
        rows: N.
        places: W.
        bits: 8, or 16 for the compute dtype of the model.
        where: of every array, see `sharding.cache_sharding`; the default device without it.
    """
    dtype = jnp.int8 if bits == 8 else jnp.dtype(config.compute_dtype)
    shape, layers = (rows, config.kv_heads), range(config.layers)
    scales = layers if bits == 8 else ()
    return Cache(
        keys_L=tuple(_zeros((*shape, config.head_dim, places), dtype, where) for _ in layers),
        values_L=tuple(_zeros((*shape, places, config.head_dim), dtype, where) for _ in layers),
        key_scales_L=tuple(_zeros((*shape, places), jnp.float32, where) for _ in scales),
        value_scales_L=tuple(_zeros((*shape, places), jnp.float32, where) for _ in scales),
    )


def grow(cache: Cache, rows: int, places: int) -> Cache:
    """Give room for more rows and places."""
    return _each(functools.partial(_grow, rows=rows, places=places), cache)


def read(cache: Cache, rows_B: jax.Array | None, places: int) -> Cache:
    """Copy the first places of some rows, None for all."""
    return _each(lambda array, axis: _read(array, rows_B, axis=axis, places=places), cache)


def write(
    cache: Cache, fresh: Cache, rows_B: jax.Array, starts_B: jax.Array, counts_B: jax.Array
) -> Cache:
    """Put the first counts_B places of `fresh` into rows, from the place starts_B on.

    Args:
        cache: rows, given away.
        fresh: one row for each of rows_B.
        rows_B: rows to write; repeated only where counts_B is 0.
        starts_B: first place of each; starts_B + counts_B is at most the places of the cache.
        counts_B: how many places are written.
    """
    return _each(
        lambda array, new, axis: _write(array, new, rows_B, starts_B, counts_B, axis=axis),
        cache,
        fresh,
    )


def copy(cache: Cache, sources_R: jax.Array, targets_R: jax.Array, places: int) -> Cache:
    """Copy the first places of source rows to target rows, one pair after the other.

    The cache is given away. A pair of equal rows does nothing.
    """
    return _each(
        lambda array, axis: _copy(array, sources_R, targets_R, axis=axis, places=places), cache
    )


def quantise(array: jax.Array, axis: int) -> tuple[jax.Array, jax.Array]:
    """Round to 8 bits along an axis: whole numbers in -127..127 and their float32 scale."""
    array = array.astype(jnp.float32)
    scale = jnp.maximum(jnp.max(jnp.abs(array), axis=axis, keepdims=True), 1e-12) / 127
    return jnp.round(array / scale).astype(jnp.int8), jnp.squeeze(scale, axis)


# Below: programs for one array of one layer, so that compiling does not grow with the depth.


def _each(change, *caches: Cache) -> Cache:
    """Build a cache from a function of arrays of a layer and the axis of their places."""
    return Cache(
        **{
            name: tuple(
                change(*arrays, axis=axis)
                for arrays in zip(*(getattr(cache, name) for cache in caches), strict=True)
            )
            for name, axis in _PLACES.items()
        }
    )


@functools.partial(jax.jit, static_argnames=("shape", "dtype", "where"))
def _zeros(shape, dtype, where):
    zeros = jnp.zeros(shape, dtype)
    return zeros if where is None else jax.lax.with_sharding_constraint(zeros, where)


@functools.partial(jax.jit, static_argnames=("axis", "rows", "places"))
def _grow(array, *, axis, rows, places):
    spare = [(0, 0)] * array.ndim
    spare[0] = (0, rows - array.shape[0])
    spare[axis] = (0, places - array.shape[axis])
    return jnp.pad(array, spare)


@functools.partial(jax.jit, static_argnames=("axis", "places"))
def _read(array, rows_B, *, axis, places):
    array = jax.lax.slice_in_dim(array, 0, places, axis=axis)
    return array if rows_B is None else array[rows_B]


@functools.partial(jax.jit, static_argnames="axis", donate_argnames="array")
def _write(array, new, rows_B, starts_B, counts_B, *, axis):
    width = min(new.shape[axis], array.shape[axis])
    new = jax.lax.slice_in_dim(new, 0, width, axis=axis)
    places = jnp.arange(width).reshape([-1 if a == axis else 1 for a in range(new.ndim)])

    def one(index, array):
        # A slice that would pass the end starts earlier, and keeps what lies there.
        first = jnp.minimum(starts_B[index], array.shape[axis] - width)
        shift = starts_B[index] - first
        begin = [jnp.int32(0)] * array.ndim
        begin[0], begin[axis] = rows_B[index], first
        piece = jax.lax.dynamic_slice_in_dim(new, index, 1, axis=0)
        old = jax.lax.dynamic_slice(array, begin, piece.shape)
        wanted = (places >= shift) & (places < shift + counts_B[index])
        piece = jnp.where(wanted, jnp.roll(piece, shift, axis=axis), old)
        return jax.lax.dynamic_update_slice(array, piece, begin)

    return jax.lax.fori_loop(0, new.shape[0], one, array)


@functools.partial(jax.jit, static_argnames=("axis", "places"), donate_argnames="array")
def _copy(array, sources_R, targets_R, *, axis, places):
    def one(index, array):
        row = jax.lax.dynamic_slice_in_dim(array, sources_R[index], 1, axis=0)
        row = jax.lax.slice_in_dim(row, 0, places, axis=axis)
        begin = [targets_R[index]] + [0] * (array.ndim - 1)
        return jax.lax.dynamic_update_slice(array, row, begin)

    return jax.lax.fori_loop(0, sources_R.shape[0], one, array)


def compiled() -> int:
    """Count the shapes that these programs have been compiled for."""
    programs = (_zeros, _grow, _read, _write, _copy)
    return sum(program._cache_size() for program in programs)
