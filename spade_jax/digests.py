"""Digests of state: a few digits that change when any number of it does.

In: a pytree of arrays, or JSON-able values. Out: hexadecimal text. That of an array depends on its
bits and their places and not on how it is sharded, so that it is the same on every mesh.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import jax
import jax.numpy as jnp

LONG = 1024  # characters
_NUMBERS = {int, float, bool, type(None)}
_WORDS = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}  # by bytes of an element


def arrays(tree: Any) -> dict[str, str]:
    """Digest every array of a pytree by the name of its path; other leaves are left out."""
    named = {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
        if isinstance(leaf, jax.Array)
    }
    sums = jax.device_get(_sums(list(named.values())))
    return {
        name: f"{leaf.dtype}{list(leaf.shape)}:{int(total):08x}"
        for (name, leaf), total in zip(named.items(), sums, strict=True)
    }


def values(record: Any) -> str:
    """Digest JSON-able values; tuples are lists, and the order of keys does not matter."""
    plain = json.dumps(_plain(record), sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def differing(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Name what has another digest, or one only on one side."""
    return sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))


def _plain(value: Any) -> Any:
    """Give keys as JSON spells them, and long texts by their digest: to quote them takes longer."""
    if isinstance(value, str):
        if len(value) < LONG:
            return value
        return "sha256:" + hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else json.dumps(key): _plain(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)) and not set(map(type, value)) <= _NUMBERS:
        return [_plain(item) for item in value]
    return value


@jax.jit
def _sums(leaves: list[jax.Array]) -> list[jax.Array]:
    return [_sum(leaf) for leaf in leaves]


def _sum(leaf: jax.Array) -> jax.Array:
    """Add up the elements' bits, each mixed with its place, modulo 2^32."""
    if leaf.dtype == jnp.bool_:
        leaf = leaf.astype(jnp.uint8)
    words = jax.lax.bitcast_convert_type(leaf, _WORDS[leaf.dtype.itemsize]).astype(jnp.uint32)
    place = jnp.zeros(words.shape, jnp.uint32)
    for axis, size in enumerate(words.shape):  # one index over all axes, without a reshape that
        place = place * jnp.uint32(size)  # would gather a sharded array
        place += jax.lax.broadcasted_iota(jnp.uint32, words.shape, axis)
    return jnp.sum(_mix(words ^ _mix(place + jnp.uint32(1))), dtype=jnp.uint32)


def _mix(x: jax.Array) -> jax.Array:
    """Spread every bit over the word. Source: the finaliser of MurmurHash3, 32 bits."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
