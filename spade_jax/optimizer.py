"""The optimiser of the update: AdamW whose moments have a dtype and a memory of their own.

In: gradients in float32. Out: parameters one step on. Pure functions of arrays, called inside the
jitted update.
Source: AdamW (arXiv:1711.05101).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

LARGEST_B2_OF_BFLOAT16 = 0.995  # 8 bits of mantissa lose a change of under 1 in 512


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Step sizes, and how and where the moments are kept."""

    learning_rate: float = 1e-6
    warmup_steps: int = 0  # optimiser steps over which the rate rises linearly
    b1: float = 0.9
    b2: float = 0.98
    eps: float = 1e-8  # added to the root of the second moment
    weight_decay: float = 0.1  # of matrices; vectors do not decay
    clip_norm: float = 1.0  # of the gradient
    state_dtype: Literal["float32", "bfloat16"] = "float32"  # of both moments
    state_memory: Literal["device", "pinned_host"] = "device"  # where moments wait between steps

    def __post_init__(self):
        for name in ("learning_rate", "eps", "clip_norm"):
            if getattr(self, name) <= 0:
                raise ValueError(f"learn.{name}={getattr(self, name)}: set it above 0.")
        if not (0 <= self.b1 < 1 and 0 <= self.b2 < 1) or self.weight_decay < 0:
            raise ValueError(
                f"learn.b1={self.b1}, b2={self.b2}, weight_decay={self.weight_decay}: use rates "
                "in [0, 1) and a decay of at least 0."
            )
        for name, known in (
            ("state_dtype", ("float32", "bfloat16")),
            ("state_memory", ("device", "pinned_host")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"learn.{name}={getattr(self, name)!r}: use one of {known}.")
        if self.state_dtype == "bfloat16" and max(self.b1, self.b2) > LARGEST_B2_OF_BFLOAT16:
            raise ValueError(
                f"learn.state_dtype='bfloat16' with b1={self.b1}, b2={self.b2}: such slow means "
                f"stand still there. Use rates of at most {LARGEST_B2_OF_BFLOAT16} or float32."
            )


class Moved(NamedTuple):
    """One optimiser step."""

    params: Any
    opt_state: Any
    update_norm: jax.Array  # 0 where the step was skipped


def build(config: OptimizerConfig) -> optax.GradientTransformation:
    """Build AdamW without its step size, which `move` applies."""

    def matrices(params):
        return jax.tree_util.tree_map_with_path(
            lambda path, _: not _is_vector(str(path[-1].key)), params
        )

    adam = optax.scale_by_adam(b1=config.b1, b2=config.b2, eps=config.eps)
    return optax.chain(
        optax.clip_by_global_norm(config.clip_norm),
        _kept_as(adam, jnp.dtype(config.state_dtype)),
        optax.add_decayed_weights(config.weight_decay, mask=matrices),
    )


def layout(params: Any, config: OptimizerConfig, places: Any, whole: Any) -> Any:
    """Place moments like their parameters and everything else on every device.

    Args:
      params: arrays or their shapes.
      places: sharding of each parameter.
      whole: sharding of what every device holds.
    Raises:
      ValueError: the devices have no memory of the configured kind.
    """
    optimizer = build(config)
    shapes = jax.eval_shape(optimizer.init, params)
    if config.state_memory != "device":
        device = whole.mesh.devices.flat[0]
        if device.platform == "cpu":
            raise ValueError(
                f"learn.state_memory={config.state_memory!r}: on the cpu platform the moments are "
                "in host memory already, and its compiler moves nothing between memories. Use "
                "state_memory='device'."
            )
        places = jax.tree.map(lambda p: p.with_memory_kind(config.state_memory), places)
    return optax.tree.map_params(
        optimizer, lambda _, place: place, shapes, places, transform_non_params=lambda _: whole
    )


def rate(step: jax.Array, config: OptimizerConfig) -> jax.Array:
    """Give the step size: constant after a linear warm-up."""
    return config.learning_rate * jnp.minimum(1.0, (step + 1) / max(config.warmup_steps, 1))


def move(
    params: Any,
    opt_state: Any,
    gradient: Any,
    sound: jax.Array,
    step: jax.Array,
    config: OptimizerConfig,
    places: Any,
) -> Moved:
    """Take one optimiser step, or none where `sound` is False.

    Args:
      step: optimiser steps tried before.
      places: sharding of each parameter.
    """
    optimizer = build(config)
    if config.state_memory != "device":
        opt_state = _to_memory(opt_state, optimizer, places, "device")
    updates, moved_state = optimizer.update(gradient, opt_state, params)
    updates = jax.tree.map(lambda u: -rate(step, config) * u, updates)
    moved = jax.lax.with_sharding_constraint(optax.apply_updates(params, updates), places)

    def keep(new, old):
        return jax.tree.map(lambda a, b: jnp.where(sound, a, b), new, old)

    moved_state = keep(moved_state, opt_state)
    moved_state = optax.tree.map_params(
        optimizer, jax.lax.with_sharding_constraint, moved_state, places
    )
    if config.state_memory != "device":
        moved_state = _to_memory(moved_state, optimizer, places, config.state_memory)
    norm = jnp.where(sound, optax.tree.norm(updates), 0.0)
    return Moved(keep(moved, params), moved_state, norm)


def _kept_as(inner: optax.GradientTransformation, dtype: jnp.dtype) -> optax.GradientTransformation:
    """Compute moments in float32 and keep them in `dtype`."""

    def cast(state, to):
        moments = (optax.tree.cast(state.mu, to), optax.tree.cast(state.nu, to))
        return state._replace(mu=moments[0], nu=moments[1])

    def update(gradient, state, params=None):
        updates, state = inner.update(gradient, cast(state, jnp.float32), params)
        return updates, cast(state, dtype)

    return optax.GradientTransformation(lambda params: cast(inner.init(params), dtype), update)


def _to_memory(opt_state, optimizer, places, kind: str):
    """Move moments between the memories of their devices."""
    return optax.tree.map_params(
        optimizer,
        lambda moment, place: jax.device_put(moment, place.with_memory_kind(kind)),
        opt_state,
        places,
    )


def _is_vector(name: str) -> bool:
    """Tell norms and biases from matrices; attention biases are stored as [L, H, C]."""
    return name.startswith("scale") or "bias" in name
