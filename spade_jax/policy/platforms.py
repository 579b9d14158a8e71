"""The platform that a trace is for, where platforms want different programs.

A program is traced for the default backend, unless `compiled_for` names the platform of described
devices. The name is a context of JAX's own, so it is part of every key under which traces and
programs are kept: what was traced for one platform is never run on another. It is read while
tracing and not while lowering (`jax.lax.platform_dependent`), since branches would stand around
every product and `jax.checkpoint` would keep for each platform what its branch wants kept.
"""

from __future__ import annotations

import contextlib

import jax

_named = jax.make_user_context("")


def compiled_for(platform: str) -> contextlib.AbstractContextManager:
    """Trace for another platform than the default backend: "cpu", "gpu" or "tpu"."""
    return _named(platform)


def current() -> str:
    """Name the platform of this trace."""
    return _named.value or jax.default_backend()
