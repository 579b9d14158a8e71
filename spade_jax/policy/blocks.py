"""Parameters of one layer as Flax NNX modules: norms, attention projections, feed-forward.

Comes in: a ModelConfig and a source of random numbers, or merged parameters. What needs positions
or masks stands in `transformer`.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from spade_jax.policy import matmul, moe, rotary, sizes

Draw = Callable[[tuple[int, ...]], jax.Array]  # shape -> standard normals


class Block(nnx.Module):
    """Parameters of one layer."""

    def __init__(self, config: sizes.ModelConfig, draw: Draw):
        self.attention_norm = RMSNorm(config, config.width)
        self.attention = Attention(config, draw)
        self.mlp_norm = RMSNorm(config, config.width)
        self.mlp = Experts(config, draw) if config.experts else Gated(config, draw)
        self.post_norms = config.post_norms
        if config.post_norms:
            self.attention_post_norm = RMSNorm(config, config.width)
            self.mlp_post_norm = RMSNorm(config, config.width)

    def project(self, hidden_BTD):
        """Give queries_BTHC, keys_BTKC and values_BTKC of the normalised stream, not yet turned."""
        return self.attention.project(self.attention_norm(hidden_BTD))

    def attended(self, hidden_BTD, attended_BTHC):
        """Add what attention gave to the residual stream."""
        change_BTD = self.attention.output(attended_BTHC)
        return hidden_BTD + (
            self.attention_post_norm(change_BTD) if self.post_norms else change_BTD
        )

    def fed(self, hidden_BTD):
        """Add what the feed-forward part makes of the residual stream."""
        change_BTD = self.mlp(self.mlp_norm(hidden_BTD))
        return hidden_BTD + (self.mlp_post_norm(change_BTD) if self.post_norms else change_BTD)

    def loads(self, hidden_BTD, counted_BT):
        """Give load_X of this layer's experts, see `moe.loads`."""
        return self.mlp.loads(self.mlp_norm(hidden_BTD), counted_BT)


class RMSNorm(nnx.Module):
    """Divide by the root mean square over the last axis, then scale."""

    def __init__(self, config: sizes.ModelConfig, size: int):
        self.scale = nnx.Param(unit_scale(config, size))
        self.config = config

    def __call__(self, x):
        return rms_norm(x, self.scale[...], self.config)


class Attention(nnx.Module):
    """Projections of grouped-query attention, before rotary positions."""

    def __init__(self, config: sizes.ModelConfig, draw: Draw):
        self.config = config
        width, heads, kv_heads = config.width, config.heads, config.kv_heads
        channels, fan_in = config.head_dim, config.width
        self.q_DHC = _matrix(config, draw, (width, heads, channels), fan_in)
        self.k_DKC = _matrix(config, draw, (width, kv_heads, channels), fan_in)
        self.v_DKC = _matrix(config, draw, (width, kv_heads, channels), fan_in)
        # Both outputs into the residual stream start smaller: its size must not grow with L.
        residual_fan_in = heads * channels * 2 * config.layers
        self.o_HCD = _matrix(config, draw, (heads, channels, width), residual_fan_in)
        if config.attention_bias:
            self.q_bias_HC = nnx.Param(jnp.zeros((heads, channels), config.param_dtype))
            self.k_bias_KC = nnx.Param(jnp.zeros((kv_heads, channels), config.param_dtype))
            self.v_bias_KC = nnx.Param(jnp.zeros((kv_heads, channels), config.param_dtype))
        if config.qk_norm:
            self.q_norm = RMSNorm(config, channels)
            self.k_norm = RMSNorm(config, channels)

    def project(self, x_BTD):
        """Give queries_BTHC, keys_BTKC and values_BTKC in the dtype of x_BTD, not yet turned."""
        dtype = x_BTD.dtype
        q_BTHC = matmul.einsum("BTD,DHC->BTHC", x_BTD, self.q_DHC[...])
        k_BTKC = matmul.einsum("BTD,DKC->BTKC", x_BTD, self.k_DKC[...])
        v_BTKC = matmul.einsum("BTD,DKC->BTKC", x_BTD, self.v_DKC[...])
        if self.config.attention_bias:
            q_BTHC = q_BTHC + self.q_bias_HC[...].astype(dtype)
            k_BTKC = k_BTKC + self.k_bias_KC[...].astype(dtype)
            v_BTKC = v_BTKC + self.v_bias_KC[...].astype(dtype)
        if self.config.qk_norm:
            q_BTHC, k_BTKC = self.q_norm(q_BTHC), self.k_norm(k_BTKC)
        gain = rotary.gain(self.config)
        return (q_BTHC if gain == 1.0 else q_BTHC * jnp.asarray(gain, dtype)), k_BTKC, v_BTKC

    def output(self, attended_BTHC):
        """Bring what the heads attended to back to the width."""
        return matmul.einsum("BTHC,HCD->BTD", attended_BTHC, self.o_HCD[...])


class Gated(nnx.Module):
    """Gated feed-forward: down(activation(gate(x)) * up(x))."""

    def __init__(self, config: sizes.ModelConfig, draw: Draw):
        width, mlp_width = config.width, config.mlp_width
        self.config = config
        self.gate_DF = _matrix(config, draw, (width, mlp_width), width)
        self.up_DF = _matrix(config, draw, (width, mlp_width), width)
        self.down_FD = _matrix(config, draw, (mlp_width, width), mlp_width * 2 * config.layers)

    def __call__(self, x_BTD):
        gate_BTF = matmul.einsum("BTD,DF->BTF", x_BTD, self.gate_DF[...])
        up_BTF = matmul.einsum("BTD,DF->BTF", x_BTD, self.up_DF[...])
        fed_BTF = moe.activation(self.config)(gate_BTF) * up_BTF
        return matmul.einsum("BTF,FD->BTD", fed_BTF, self.down_FD[...])


class Experts(nnx.Module):
    """X gated feed-forwards, of which each token uses a few, see `moe`."""

    def __init__(self, config: sizes.ModelConfig, draw: Draw):
        experts, width, mlp_width = config.experts, config.width, config.mlp_width
        self.config = config
        self.router_DX = _matrix(config, draw, (width, experts), width)
        self.gate_XDF = _matrix(config, draw, (experts, width, mlp_width), width)
        self.up_XDF = _matrix(config, draw, (experts, width, mlp_width), width)
        residual_fan_in = mlp_width * 2 * config.layers
        self.down_XFD = _matrix(config, draw, (experts, mlp_width, width), residual_fan_in)

    def __call__(self, x_BTD):
        x_ND = x_BTD.reshape(-1, x_BTD.shape[-1])
        experts_NK, weights_NK = moe.route(self.config, self.router_DX[...], x_ND)
        matrices = (self.gate_XDF[...], self.up_XDF[...], self.down_XFD[...])
        return moe.mix(self.config, x_ND, experts_NK, weights_NK, matrices).reshape(x_BTD.shape)

    def loads(self, x_BTD, counted_BT):
        """Give load_X over the tokens that counted_BT marks, see `moe.loads`."""
        x_ND = x_BTD.reshape(-1, x_BTD.shape[-1])
        experts_NK, _ = moe.route(self.config, self.router_DX[...], x_ND)
        return moe.loads(self.config, experts_NK, counted_BT.reshape(-1))


def unit_scale(config: sizes.ModelConfig, size: int) -> jax.Array:
    """Give the scale of a norm that changes nothing but the length."""
    return jnp.full(size, 1.0 - config.norm_offset, config.param_dtype)


def rms_norm(x: jax.Array, scale: jax.Array, config: sizes.ModelConfig) -> jax.Array:
    """Divide by the root mean square over the last axis in float32, then scale."""
    x32, scale32 = x.astype(jnp.float32), scale.astype(jnp.float32)
    if config.norm_offset:
        scale32 = scale32 + config.norm_offset
    mean_square = jnp.mean(jnp.square(x32), axis=-1, keepdims=True)
    return (x32 * jax.lax.rsqrt(mean_square + config.norm_eps) * scale32).astype(x.dtype)


def _matrix(config: sizes.ModelConfig, draw: Draw, shape: tuple, fan_in: int) -> nnx.Param:
    return nnx.Param((draw(shape) * fan_in**-0.5).astype(config.param_dtype))
