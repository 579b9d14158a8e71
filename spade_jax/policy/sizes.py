"""The sizes and options that tell one model family from another: `ModelConfig`."""

from __future__ import annotations

import dataclasses
import typing

_CHOICES = {
    "activation": ("silu", "gelu_tanh"),
    "role_head": ("tied", "lowrank", "separate"),
    "compute_dtype": ("float32", "bfloat16"),
    "param_dtype": ("float32", "bfloat16"),
    "remat": ("none", "full", "attended", "dots"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How rotary wavelengths are stretched beyond the length that a model was first trained on.

    Fields are named as in Hugging Face configurations.
    """

    kind: typing.Literal["linear", "llama3", "yarn"]
    factor: float  # of the stretch
    original_positions: int = 8192  # length of the first training; "llama3" and "yarn"
    low_freq_factor: float = 1.0  # "llama3": wavelengths above original / this are stretched
    high_freq_factor: float = 4.0  # "llama3": wavelengths below original / this are kept
    beta_fast: float = 32.0  # "yarn": channels that turn more often than this are kept
    beta_slow: float = 1.0  # "yarn": channels that turn less often than this are stretched
    attention_factor: float = 0.0  # "yarn": gain of queries and keys; 0: 0.1 ln(factor) + 1

    def __post_init__(self):
        if self.kind not in ("linear", "llama3", "yarn"):
            raise ValueError(
                f"model.rope_scaling.kind={self.kind!r}; choose linear, llama3 or yarn."
            )
        if self.factor < 1:
            raise ValueError(f"model.rope_scaling.factor={self.factor} must be at least 1.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes and options of the policy."""

    vocab_size: int  # V
    layers: int  # L
    width: int  # D, of the residual stream
    heads: int  # H, query heads
    kv_heads: int  # K, key and value heads; H / K queries share one
    head_dim: int  # C, channels per head; heads * head_dim may differ from width
    mlp_width: int  # F, of one expert where there are experts
    rope_theta: float = 10000.0  # base of the rotary wavelengths
    rope_scaling: RopeScaling | None = None
    rope_layers: tuple[int, ...] = ()  # 0 where a layer has no rotary positions; empty: all have
    window: int = 0  # tokens, itself included, that a layer of `window_layers` looks back on
    window_layers: tuple[int, ...] = ()  # 1 where a layer sees `window` tokens, 0 where it sees all
    window_rope_theta: float = 0.0  # base of those layers, never scaled; 0: as the others
    norm_eps: float = 1e-6
    norm_offset: float = 0.0  # added to every norm's scale: 1 for Gemma
    post_norms: bool = False  # norms also behind attention and feed-forward (Gemma)
    activation: typing.Literal["silu", "gelu_tanh"] = "silu"  # of the gate
    embed_scale: float = 1.0  # multiplies embeddings, rounded to the compute dtype (Gemma)
    query_scale: float = 0.0  # multiplies q . k; 0: head_dim ** -0.5
    attention_softcap: float = 0.0  # c tanh(scores / c) before the softmax; 0: none
    logit_softcap: float = 0.0  # the same for logits
    tied_embeddings: bool = True  # the output projection is the transposed embedding
    qk_norm: bool = False  # RMSNorm over the channels of queries and keys (Qwen3, Gemma 3)
    attention_bias: bool = False  # biases on queries, keys and values (Qwen2)
    experts: int = 0  # X, feed-forward experts per layer; 0: one dense feed-forward
    experts_per_token: int = 0
    norm_expert_weights: bool = True  # weights of a token's experts sum to 1
    role_head: typing.Literal["tied", "lowrank", "separate"] = (
        "tied"  # "tied": role only in the prompt; "lowrank": low-rank change per role; "separate":
        # an output projection per role, which starts as the shared one
    )
    role_rank: int = 8  # R of "lowrank"
    compute_dtype: typing.Literal["float32", "bfloat16"] = (
        "float32"  # of matrix products and the residual stream
    )
    param_dtype: typing.Literal["float32", "bfloat16"] = "float32"  # of the stored parameters
    remat: typing.Literal["none", "full", "attended", "dots"] = (
        "none"  # "full": recompute each layer in the backward pass; "attended": all but its
        # attention; "dots": all but attention and products
    )

    def __post_init__(self):
        self._check_sizes()
        self._check_layers()
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"model.{name}={getattr(self, name)!r}; choose one of {allowed}.")

    def _check_sizes(self):
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
        if self.experts and not 1 <= self.experts_per_token <= self.experts:
            raise ValueError(
                f"model.experts_per_token={self.experts_per_token} must be from 1 to "
                f"model.experts={self.experts}."
            )

    def _check_layers(self):
        for name in ("rope_layers", "window_layers"):
            flags = getattr(self, name)
            if flags and (len(flags) != self.layers or not set(flags) <= {0, 1}):
                raise ValueError(
                    f"model.{name}={flags}: give one 0 or 1 for each of the {self.layers} layers, "
                    f"or nothing."
                )
        if any(self.window_layers) != bool(self.window):
            raise ValueError(
                f"model.window={self.window} and model.window_layers={self.window_layers}: a "
                f"window needs layers that use it, and the other way round. Set both or none."
            )
