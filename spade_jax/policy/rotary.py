"""Rotary positions: wavelengths of each channel pair, and the turn itself.

Source: RoFormer, https://arxiv.org/abs/2104.09864, section 3.4.2; pairs are half-split (c, c + C/2)
instead of interleaved, as in Llama's and Qwen's published weights.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from spade_jax.policy import sizes


def frequencies(config: sizes.ModelConfig, layer: int = 0) -> np.ndarray:
    """Give the angle per position of each channel pair of one layer, [C/2] float32, in rad."""
    pairs = config.head_dim // 2
    if config.rope_layers and not config.rope_layers[layer]:
        return np.zeros(pairs, np.float32)
    local = bool(config.window_layers) and config.window_layers[layer] == 1
    if local and config.window_rope_theta:
        return _geometric(config.window_rope_theta, pairs)
    plain = _geometric(config.rope_theta, pairs)
    return plain if config.rope_scaling is None else _scaled(plain, config)


def gain(config: sizes.ModelConfig) -> float:
    """Factor on queries so that q . k, times head_dim ** -0.5, is scaled as the config says."""
    scaling, scale = config.rope_scaling, 1.0
    if config.query_scale:
        scale = config.query_scale * config.head_dim**0.5
    if scaling is not None and scaling.kind == "yarn":
        # YaRN lengthens queries and keys alike, so their product by the square.
        scale *= (scaling.attention_factor or 0.1 * math.log(scaling.factor) + 1.0) ** 2
    return scale


def rotate(x_BTHC: jax.Array, positions_BT: jax.Array, frequencies_C: jax.Array) -> jax.Array:
    """Turn channel pairs (c, c + C/2) by position * frequencies[c]."""
    angles_BT1C = positions_BT[:, :, None, None].astype(jnp.float32) * frequencies_C
    cos_BT1C, sin_BT1C = jnp.cos(angles_BT1C), jnp.sin(angles_BT1C)
    first, second = jnp.split(x_BTHC.astype(jnp.float32), 2, axis=-1)
    turned = (first * cos_BT1C - second * sin_BT1C, second * cos_BT1C + first * sin_BT1C)
    return jnp.concatenate(turned, axis=-1).astype(x_BTHC.dtype)


def _geometric(theta: float, pairs: int) -> np.ndarray:
    return (np.float32(theta) ** (-np.arange(pairs, dtype=np.float32) / pairs)).astype(np.float32)


def _scaled(plain_C: np.ndarray, config: sizes.ModelConfig) -> np.ndarray:
    scaling = config.rope_scaling
    stretched_C = plain_C / scaling.factor
    if scaling.kind == "linear":
        return stretched_C.astype(np.float32)
    kept_C = _kept_llama3(plain_C, scaling) if scaling.kind == "llama3" else _kept_yarn(config)
    return (kept_C * plain_C + (1 - kept_C) * stretched_C).astype(np.float32)


def _kept_llama3(plain_C: np.ndarray, scaling: sizes.RopeScaling) -> np.ndarray:
    """Share of the unscaled frequency: 1 for short wavelengths, 0 for long ones, linear between."""
    turns_C = scaling.original_positions * plain_C / (2 * math.pi)
    span = scaling.high_freq_factor - scaling.low_freq_factor
    return np.clip((turns_C - scaling.low_freq_factor) / span, 0, 1)


def _kept_yarn(config: sizes.ModelConfig) -> np.ndarray:
    """The same for YaRN, https://arxiv.org/abs/2309.00071, section 3.2: linear in the channel."""
    scaling, pairs = config.rope_scaling, config.head_dim // 2

    def channel(turns):  # that turns this often within the original length
        ratio = scaling.original_positions / (turns * 2 * math.pi)
        return pairs * math.log(ratio) / math.log(config.rope_theta)

    low = max(math.floor(channel(scaling.beta_fast)), 0)
    high = min(math.ceil(channel(scaling.beta_slow)), config.head_dim - 1)
    ramp_C = (np.arange(pairs, dtype=np.float32) - low) / max(high - low, 0.001)
    return 1 - np.clip(ramp_C, 0, 1)
