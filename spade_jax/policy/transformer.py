"""The policy: a decoder-only transformer, one definition for sampler and trainer.

Comes in: a ModelConfig and token ids. Goes out: the hidden states that `heads` turns into
log-probabilities. The layers are Flax NNX modules; at the edge they are split into a plain nested
dict of arrays, layers stacked on their first axis, so that one layer is traced and compiled
whatever the depth. Weight layouts follow Llama and Qwen (RMSNorm before each half, rotary positions
over half-split channels, grouped queries, gated SiLU), so that their checkpoints load by renaming
and transposing.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from spade_jax import records

_MASKED = -1e30  # finite, so that a row with nothing to attend gives numbers and not NaN

Draw = Callable[[tuple[int, ...]], jax.Array]  # shape -> standard normals

# Logical axes of every parameter, in the layout of `init`; `sharding.RULES` maps them to the mesh.
AXES = {
    "embed": ("vocab", "embed"),
    "norm": {"scale": ("norm",)},
    "layers": {
        "attention": {
            "q_DHC": ("layers", "embed", "heads", "channels"),
            "k_DKC": ("layers", "embed", "kv_heads", "channels"),
            "v_DKC": ("layers", "embed", "kv_heads", "channels"),
            "o_HCD": ("layers", "heads", "channels", "embed"),
            "q_bias_HC": ("layers", "heads", "channels"),
            "k_bias_KC": ("layers", "kv_heads", "channels"),
            "v_bias_KC": ("layers", "kv_heads", "channels"),
            "q_norm": {"scale": ("layers", "channels")},
            "k_norm": {"scale": ("layers", "channels")},
        },
        "attention_norm": {"scale": ("layers", "norm")},
        "mlp": {
            "gate_DF": ("layers", "embed", "mlp"),
            "up_DF": ("layers", "embed", "mlp"),
            "down_FD": ("layers", "mlp", "embed"),
        },
        "mlp_norm": {"scale": ("layers", "norm")},
    },
    "head": {
        "output_DV": ("embed", "vocab"),
        "lowrank_in": ("roles", "embed", "rank"),
        "lowrank_out": ("roles", "rank", "vocab"),
    },
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes and options of the policy."""

    vocab_size: int  # V
    layers: int  # L
    width: int  # D, of the residual stream
    heads: int  # H, query heads
    kv_heads: int  # K, key and value heads; H / K queries share one
    head_dim: int  # C, channels per head; heads * head_dim may differ from width
    mlp_width: int  # F
    rope_theta: float = 10000.0  # base of the rotary wavelengths
    norm_eps: float = 1e-6
    tied_embeddings: bool = True  # the output projection is the transposed embedding
    qk_norm: bool = False  # RMSNorm over the channels of queries and keys (Qwen3)
    attention_bias: bool = False  # biases on queries, keys and values (Qwen2)
    role_head: typing.Literal["tied", "lowrank"] = (
        "tied"  # "tied": role only in the prompt; "lowrank": low-rank change per role
    )
    role_rank: int = 8  # R of "lowrank"
    compute_dtype: typing.Literal["float32", "bfloat16"] = (
        "float32"  # of matrix products and the residual stream
    )
    param_dtype: typing.Literal["float32", "bfloat16"] = "float32"  # of the stored parameters
    remat: typing.Literal["none", "full"] = (
        "none"  # "full": recompute each layer in the backward pass
    )

    def __post_init__(self):
        sizes = ("vocab_size", "layers", "width", "heads", "kv_heads", "head_dim", "mlp_width")
        for name in (*sizes, "role_rank"):
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name}={getattr(self, name)} must be at least 1.")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"model.heads={self.heads} must be a multiple of model.kv_heads={self.kv_heads}; "
                f"set kv_heads to a divisor of heads."
            )
        if self.head_dim % 2:
            raise ValueError(
                f"model.head_dim={self.head_dim} must be even: rotary positions turn channel pairs."
            )
        choices = {
            "role_head": ("tied", "lowrank"),
            "compute_dtype": ("float32", "bfloat16"),
            "param_dtype": ("float32", "bfloat16"),
            "remat": ("none", "full"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"model.{name}={getattr(self, name)!r}; choose one of {allowed}.")


def init(config: ModelConfig, key: jax.Array) -> dict:
    """Draw parameters: a nested dict in `config.param_dtype`, layers stacked on axis 0."""
    count = _size(lambda: _split_block(config, jnp.zeros)[1])
    rest = _size(lambda: _init_ends(config, jnp.zeros))
    # One long draw, cut into pieces: a random program is slow to compile, and this is only one.
    normals = jax.random.normal(key, (config.layers * count + rest,))
    normals_LX = normals[: config.layers * count].reshape(config.layers, count)
    layers = jax.vmap(lambda normals_X: _split_block(config, _Pieces(normals_X))[1])(normals_LX)
    return {**_init_ends(config, _Pieces(normals[config.layers * count :])), "layers": layers}


def forward(
    params: dict,
    config: ModelConfig,
    tokens_BT: jax.Array,
    positions_BT: jax.Array,
    segments_BT: jax.Array,
) -> jax.Array:
    """Run the trunk over packed or padded rows.

    Args:
        params: as from `init`.
        tokens_BT: token ids; any valid id where the row is padding.
        positions_BT: position of each token within its own sequence, from 0.
        segments_BT: sequence number within the row, 0 for padding. A token attends to earlier
            tokens of the row with its own number, so rows may be packed and padded on any side.
    Returns:
        hidden_BTD after the final norm, in the compute dtype. Padding gives finite numbers
        without meaning.
    """
    return scan_layers(params, config, tokens_BT, positions_BT, segments_BT)[0]


def scan_layers(
    params: dict,
    config: ModelConfig,
    tokens_BT: jax.Array,
    positions_BT: jax.Array,
    segments_BT: jax.Array,
    keep_cache: bool = False,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array] | None]:
    """Do what `forward` does; with `keep_cache` also return keys_LBTKC and values_LBTKC."""
    order_T = jnp.arange(tokens_BT.shape[1])
    same_BTT = segments_BT[:, :, None] == segments_BT[:, None, :]
    mask_BTT = same_BTT & (order_T[:, None] >= order_T[None, :])

    def layer(hidden_BTD, layer_params):
        module = block(config, layer_params)
        q_BTHC, k_BTKC, v_BTKC = module.project(hidden_BTD, positions_BT)
        attended_BTHC = attend(q_BTHC, k_BTKC, v_BTKC, mask_BTT)
        kept = (k_BTKC, v_BTKC) if keep_cache else None
        return module.finish(hidden_BTD, attended_BTHC), kept

    if config.remat == "full":
        layer = jax.checkpoint(layer, prevent_cse=False)  # scan already keeps the two passes apart
    with precision(config):
        embedded_BTD = embed(params, config, tokens_BT)
        hidden_BTD, cache = jax.lax.scan(layer, embedded_BTD, params["layers"])
    return final_norm(params, config, hidden_BTD), cache


def embed(params: dict, config: ModelConfig, tokens_BT: jax.Array) -> jax.Array:
    """Look up token ids: hidden_BTD in the compute dtype."""
    return params["embed"][tokens_BT].astype(config.compute_dtype)


def final_norm(params: dict, config: ModelConfig, hidden_BTD: jax.Array) -> jax.Array:
    """Normalise the residual stream behind the last layer."""
    return _rms_norm(hidden_BTD, params["norm"]["scale"], config.norm_eps)


def block(config: ModelConfig, layer_params: dict) -> Block:
    """Join one layer's parameters, without the layer axis, to the module that uses them."""
    return nnx.merge(_block_graph(config), layer_params)


def precision(config: ModelConfig):
    """Keep float32 products in float32 on accelerators that round them by default."""
    return jax.default_matmul_precision("highest" if config.compute_dtype == "float32" else None)


def attend(
    q_BTHC: jax.Array, k_BSKC: jax.Array, v_BSKC: jax.Array, mask_BTS: jax.Array
) -> jax.Array:
    """Attend with grouped queries; softmax in float32.

    Args:
        q_BTHC: queries; head h uses key-value head h // (H / K).
        k_BSKC: keys of the S places that may be looked at.
        v_BSKC: values of the same places.
        mask_BTS: True where query t may look at place s.
    Returns:
        attended_BTHC in the dtype of the values.
    """
    rows, queries, heads, channels = q_BTHC.shape
    q_BTKGC = q_BTHC.reshape(rows, queries, k_BSKC.shape[2], -1, channels)
    scores_BKGTS = jnp.einsum(
        "BTKGC,BSKC->BKGTS", q_BTKGC, k_BSKC, preferred_element_type=jnp.float32
    )
    scores_BKGTS = scores_BKGTS * channels**-0.5
    scores_BKGTS = jnp.where(mask_BTS[:, None, None], scores_BKGTS, _MASKED)
    weights_BKGTS = jax.nn.softmax(scores_BKGTS, axis=-1).astype(v_BSKC.dtype)
    return jnp.einsum("BKGTS,BSKC->BTKGC", weights_BKGTS, v_BSKC).reshape(q_BTHC.shape)


def rotate(x_BTHC: jax.Array, positions_BT: jax.Array, theta: float) -> jax.Array:
    """Turn channel pairs (c, c + C/2) by position * theta^(-2c/C).

    Source: RoFormer, https://arxiv.org/abs/2104.09864, section 3.4.2; pairs are half-split
    instead of interleaved, as in Llama's and Qwen's published weights.
    """
    half = x_BTHC.shape[-1] // 2
    frequencies = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angles_BT1C = positions_BT[:, :, None, None].astype(jnp.float32) * frequencies
    cos_BT1C, sin_BT1C = jnp.cos(angles_BT1C), jnp.sin(angles_BT1C)
    first, second = jnp.split(x_BTHC.astype(jnp.float32), 2, axis=-1)
    turned = (first * cos_BT1C - second * sin_BT1C, second * cos_BT1C + first * sin_BT1C)
    return jnp.concatenate(turned, axis=-1).astype(x_BTHC.dtype)


class Block(nnx.Module):
    """One layer, in two halves around the attention that training and decoding do differently."""

    def __init__(self, config: ModelConfig, draw: Draw):
        self.attention_norm = RMSNorm(config, config.width)
        self.attention = Attention(config, draw)
        self.mlp_norm = RMSNorm(config, config.width)
        self.mlp = SwiGLU(config, draw)

    def project(self, hidden_BTD, positions_BT):
        """Give queries BTHC, keys BTKC and values BTKC of this layer."""
        return self.attention.project(self.attention_norm(hidden_BTD), positions_BT)

    def finish(self, hidden_BTD, attended_BTHC):
        """Add attention output and feed-forward output to the residual stream."""
        hidden_BTD = hidden_BTD + self.attention.output(attended_BTHC)
        return hidden_BTD + self.mlp(self.mlp_norm(hidden_BTD))


class RMSNorm(nnx.Module):
    """Divide by the root mean square over the last axis, then scale."""

    def __init__(self, config: ModelConfig, size: int):
        self.scale = nnx.Param(jnp.ones(size, config.param_dtype))
        self.eps = config.norm_eps

    def __call__(self, x):
        return _rms_norm(x, self.scale[...], self.eps)


class Attention(nnx.Module):
    """Projections of grouped-query attention with rotary positions."""

    def __init__(self, config: ModelConfig, draw: Draw):
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

    def project(self, x_BTD, positions_BT):
        dtype = x_BTD.dtype
        q_BTHC = jnp.einsum("BTD,DHC->BTHC", x_BTD, self.q_DHC[...].astype(dtype))
        k_BTKC = jnp.einsum("BTD,DKC->BTKC", x_BTD, self.k_DKC[...].astype(dtype))
        v_BTKC = jnp.einsum("BTD,DKC->BTKC", x_BTD, self.v_DKC[...].astype(dtype))
        if self.config.attention_bias:
            q_BTHC = q_BTHC + self.q_bias_HC[...].astype(dtype)
            k_BTKC = k_BTKC + self.k_bias_KC[...].astype(dtype)
            v_BTKC = v_BTKC + self.v_bias_KC[...].astype(dtype)
        if self.config.qk_norm:
            q_BTHC, k_BTKC = self.q_norm(q_BTHC), self.k_norm(k_BTKC)
        theta = self.config.rope_theta
        return rotate(q_BTHC, positions_BT, theta), rotate(k_BTKC, positions_BT, theta), v_BTKC

    def output(self, attended_BTHC):
        o_HCD = self.o_HCD[...].astype(attended_BTHC.dtype)
        return jnp.einsum("BTHC,HCD->BTD", attended_BTHC, o_HCD)


class SwiGLU(nnx.Module):
    """Gated feed-forward: down(silu(gate(x)) * up(x))."""

    def __init__(self, config: ModelConfig, draw: Draw):
        width, mlp_width = config.width, config.mlp_width
        self.gate_DF = _matrix(config, draw, (width, mlp_width), width)
        self.up_DF = _matrix(config, draw, (width, mlp_width), width)
        self.down_FD = _matrix(config, draw, (mlp_width, width), mlp_width * 2 * config.layers)

    def __call__(self, x_BTD):
        dtype = x_BTD.dtype
        gate_BTF = jax.nn.silu(x_BTD @ self.gate_DF[...].astype(dtype))
        up_BTF = x_BTD @ self.up_DF[...].astype(dtype)
        return (gate_BTF * up_BTF) @ self.down_FD[...].astype(dtype)


class _Pieces:
    """Hands out consecutive pieces of one long draw."""

    def __init__(self, normals: jax.Array):
        self._normals = normals
        self._used = 0

    def __call__(self, shape: tuple[int, ...]) -> jax.Array:
        start, self._used = self._used, self._used + math.prod(shape)
        return self._normals[start : self._used].reshape(shape)


def _size(build: Callable[[], dict]) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(build)))


def _matrix(config: ModelConfig, draw: Draw, shape: tuple, fan_in: int) -> nnx.Param:
    return nnx.Param((draw(shape) * fan_in**-0.5).astype(config.param_dtype))


def _rms_norm(x, scale, eps):
    x32 = x.astype(jnp.float32)
    mean_square = jnp.mean(jnp.square(x32), axis=-1, keepdims=True)
    return (x32 * jax.lax.rsqrt(mean_square + eps) * scale.astype(jnp.float32)).astype(x.dtype)


def _split_block(config: ModelConfig, draw: Draw) -> tuple[nnx.GraphDef, dict]:
    graph, state = nnx.split(Block(config, draw))
    return graph, nnx.to_pure_dict(state)


@functools.lru_cache
def _block_graph(config: ModelConfig) -> nnx.GraphDef:
    graphs = []

    def build():
        graph, state = _split_block(config, jnp.zeros)
        graphs.append(graph)
        return state

    jax.eval_shape(build)
    return graphs[0]


def _init_ends(config: ModelConfig, draw: Draw) -> dict:
    """Everything but the layers: embedding, final norm, output heads."""
    dtype, width, vocab = jnp.dtype(config.param_dtype), config.width, config.vocab_size
    ends = {
        "embed": (draw((vocab, width)) * 0.02).astype(dtype),
        "norm": {"scale": jnp.ones(width, dtype)},
    }
    head = {}
    if not config.tied_embeddings:
        head["output_DV"] = (draw((width, vocab)) * width**-0.5).astype(dtype)
    if config.role_head == "lowrank":
        roles, rank = len(records.ROLES), config.role_rank
        head["lowrank_in"] = (draw((roles, width, rank)) * width**-0.5).astype(dtype)
        # Zero, so that every role starts with the shared projection.
        head["lowrank_out"] = jnp.zeros((roles, rank, vocab), dtype)
    return {**ends, "head": head} if head else ends
