"""Published model families as `ModelConfig`, and the named sizes that the experiments use.

Comes in: the `config.json` of a Hugging Face directory, in the spelling of transformers 4 or 5.
Goes out: a ModelConfig, or a ValueError that says which option this transformer does not have.
A family is a row of `_FAMILIES`; what it computes is options of ModelConfig.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spade_jax.policy import sizes

_ACTIVATIONS = {
    "silu": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_tanh": "gelu_tanh",
}


def from_hugging_face(given: Mapping[str, Any], where: str) -> sizes.ModelConfig:
    """Read a `config.json`.

    Args:
        given: its content; of a model with several parts, the text part is taken.
        where: file name, for messages.
    Raises:
        ValueError: a family or an option that is not supported, or a size that is missing.
    """
    family = given.get("model_type")
    if family not in _FAMILIES:
        raise ValueError(
            f"{where}: model_type={family!r} is not supported; the families are "
            f"{', '.join(sorted(_FAMILIES))}."
        )
    if "text_config" in given:
        # What holds for the whole model stands beside the part, and the part may omit it.
        given = {
            **{k: v for k, v in given.items() if k == "tie_word_embeddings"},
            **given["text_config"],
        }
    options = {**_DEFAULTS.get(family, {}), **{k: v for k, v in given.items() if v is not None}}
    for name in ("mlp_bias", "attention_bias", "use_bidirectional_attention"):
        if options.get(name):
            raise ValueError(f"{where}: {name}={options[name]} is not supported; it must be false.")
    try:
        config = {**_common(options, where), **_FAMILIES[family](options, where)}
    except KeyError as error:
        raise ValueError(f"{where}: {error.args[0]} is missing.") from error
    return sizes.ModelConfig(**config)


def named(name: str) -> sizes.ModelConfig:
    """Give the sizes of a published model by its name.

    Raises:
        ValueError: a name that is not in the table.
    """
    if name not in _NAMED:
        raise ValueError(f"model {name!r} is not in the table; it has {', '.join(_NAMED)}.")
    family, options = _NAMED[name]
    options = {"model_type": family, "rms_norm_eps": 1e-6, "vocab_size": 151936, **options}
    return from_hugging_face(options, name)


def _common(options: Mapping[str, Any], where: str) -> dict:
    activation = options.get("hidden_act") or options.get("hidden_activation") or "silu"
    if activation not in _ACTIVATIONS:
        raise ValueError(
            f"{where}: hidden_act={activation!r} is not supported; {', '.join(_ACTIVATIONS)} are."
        )
    heads = options["num_attention_heads"]
    return dict(
        vocab_size=options["vocab_size"],
        layers=options["num_hidden_layers"],
        width=options["hidden_size"],
        heads=heads,
        kv_heads=options.get("num_key_value_heads", heads),
        head_dim=options.get("head_dim", options["hidden_size"] // heads),
        mlp_width=options["intermediate_size"],
        norm_eps=options["rms_norm_eps"],
        tied_embeddings=bool(options.get("tie_word_embeddings", False)),
        activation=_ACTIVATIONS[activation],
        **_rope(_rope_of(options, "full_attention"), where),
    )


def _rope_of(options: Mapping[str, Any], kind: str) -> dict:
    """Join both spellings: rope_theta beside rope_scaling, or rope_parameters, maybe per kind."""
    found = {"rope_theta": options.get("rope_theta", 10000.0), **options.get("rope_scaling", {})}
    stated = options.get("rope_parameters", {})
    found.update(stated.get(kind, {}) if _per_kind(stated) else stated)
    positions = options.get("max_position_embeddings", 8192)
    found.setdefault("original_max_position_embeddings", positions)
    return found


def _per_kind(stated: Mapping[str, Any]) -> bool:
    return any(isinstance(entry, Mapping) for entry in stated.values())


def _rope(rope: Mapping[str, Any], where: str) -> dict:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return {"rope_theta": float(rope["rope_theta"])}
    if kind not in ("linear", "llama3", "yarn"):
        raise ValueError(
            f"{where}: rope_type={kind!r} is not supported; default, linear, llama3 and yarn are."
        )
    names = ("low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor")
    scaling = sizes.RopeScaling(
        kind=kind,
        factor=float(rope["factor"]),
        original_positions=int(rope["original_max_position_embeddings"]),
        **{name: float(rope[name]) for name in names if rope.get(name) is not None},
    )
    return {"rope_theta": float(rope["rope_theta"]), "rope_scaling": scaling}


def _llama(options: Mapping[str, Any], where: str) -> dict:
    return {}


def _mistral(options: Mapping[str, Any], where: str) -> dict:
    return _windows(options, [1] * options["num_hidden_layers"])


def _smollm3(options: Mapping[str, Any], where: str) -> dict:
    layers, every = options["num_hidden_layers"], options.get("no_rope_layer_interval", 4)
    flags = options.get("no_rope_layers") or [int((i + 1) % every != 0) for i in range(layers)]
    return {"rope_layers": tuple(flags), **_qwen2_windows(options)}


def _qwen2(options: Mapping[str, Any], where: str) -> dict:
    return {"attention_bias": True, **_qwen2_windows(options)}


def _qwen3(options: Mapping[str, Any], where: str) -> dict:
    return {"qk_norm": True, **_qwen2_windows(options)}


def _qwen3_moe(options: Mapping[str, Any], where: str) -> dict:
    if options.get("decoder_sparse_step", 1) != 1 or options.get("mlp_only_layers"):
        raise ValueError(
            f"{where}: layers without experts between layers with them are not supported "
            f"(decoder_sparse_step must be 1 and mlp_only_layers empty)."
        )
    experts = options["num_experts"] if "num_experts" in options else options["num_local_experts"]
    return {
        **_qwen3(options, where),
        "experts": experts,
        "experts_per_token": options["num_experts_per_tok"],
        "mlp_width": options["moe_intermediate_size"],
        "norm_expert_weights": bool(options.get("norm_topk_prob", False)),
    }


def _gemma2(options: Mapping[str, Any], where: str) -> dict:
    return {
        **_gemma(options),
        **_windows(options, [int(i % 2 == 0) for i in range(options["num_hidden_layers"])]),
        "attention_softcap": float(options.get("attn_logit_softcapping") or 0),
        "logit_softcap": float(options.get("final_logit_softcapping") or 0),
    }


def _gemma3(options: Mapping[str, Any], where: str) -> dict:
    every = options.get("sliding_window_pattern") or options.get("_sliding_window_pattern") or 6
    flags = [int((i + 1) % every != 0) for i in range(options["num_hidden_layers"])]
    local = _rope_of(options, "sliding_attention")
    per_kind = _per_kind(options.get("rope_parameters", {}))
    theta = local["rope_theta"] if per_kind else options.get("rope_local_base_freq", 10000.0)
    windows = _windows(options, flags)
    return {
        **_gemma2(options, where),
        **windows,
        "qk_norm": True,
        "window_rope_theta": float(theta) if windows else 0.0,
    }


def _gemma(options: Mapping[str, Any]) -> dict:
    return {
        "norm_offset": 1.0,
        "post_norms": True,
        "embed_scale": float(options["hidden_size"] ** 0.5),
        "query_scale": float(options["query_pre_attn_scalar"] ** -0.5),
        "tied_embeddings": bool(options.get("tie_word_embeddings", True)),
    }


def _qwen2_windows(options: Mapping[str, Any]) -> dict:
    if not options.get("use_sliding_window"):
        return {}
    layers, first = options["num_hidden_layers"], options.get("max_window_layers", 28)
    return _windows(options, [int(i >= first) for i in range(layers)])


def _windows(options: Mapping[str, Any], flags: list[int]) -> dict:
    """Take which layers have a window from `layer_types` where given, else from `flags`."""
    if "layer_types" in options:
        flags = [int(kind == "sliding_attention") for kind in options["layer_types"]]
    window = options.get("sliding_window")
    return {"window": window, "window_layers": tuple(flags)} if window and any(flags) else {}


_FAMILIES: dict[str, Callable[[Mapping[str, Any], str], dict]] = {
    "llama": _llama,
    "mistral": _mistral,
    "smollm3": _smollm3,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gemma3_text": _gemma3,
}

# What transformers assumes where `config.json` is silent; the text part of Gemma 3 often is.
_GEMMA3 = dict(
    vocab_size=262208,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=256,
    rms_norm_eps=1e-6,
    query_pre_attn_scalar=256,
    sliding_window=4096,
    rope_theta=1e6,
    hidden_act="gelu_pytorch_tanh",
    tie_word_embeddings=True,
)
_DEFAULTS = {
    "llama": {"rms_norm_eps": 1e-6},
    "smollm3": {"rms_norm_eps": 1e-6, "tie_word_embeddings": True},
    "gemma2": {"tie_word_embeddings": True, "hidden_act": "gelu_pytorch_tanh"},
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
}


def _shape(layers: int, width: int, mlp: int, heads: int, kv_heads: int, **rest: Any) -> dict:
    return {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "intermediate_size": mlp,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        **rest,
    }


def _coder(*shape: int, tied: bool = True, **rest: Any) -> tuple[str, dict]:
    return "qwen2", _shape(*shape, rope_theta=1e6, tie_word_embeddings=tied, **rest)


_EXPERTS = dict(num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768)
_NAMED = {
    "Qwen3-4B-Instruct-2507": (
        "qwen3",
        _shape(36, 2560, 9728, 32, 8, head_dim=128, rope_theta=5e6, tie_word_embeddings=True),
    ),
    "Qwen3-8B": ("qwen3", _shape(36, 4096, 12288, 32, 8, head_dim=128, rope_theta=1e6)),
    "Qwen3-30B-A3B": (
        "qwen3_moe",
        _shape(
            48, 2048, 6144, 32, 4, head_dim=128, rope_theta=1e6, norm_topk_prob=True, **_EXPERTS
        ),
    ),
    "Qwen2.5-Coder-0.5B": _coder(24, 896, 4864, 14, 2),
    "Qwen2.5-Coder-1.5B": _coder(28, 1536, 8960, 12, 2),
    "Qwen2.5-Coder-3B": _coder(36, 2048, 11008, 16, 2),
    "Qwen2.5-Coder-7B": _coder(28, 3584, 18944, 28, 4, tied=False, vocab_size=152064),
    "SmolLM2-135M": (
        "llama",
        _shape(30, 576, 1536, 9, 3, rope_theta=1e5, rms_norm_eps=1e-5, vocab_size=49152)
        | {"tie_word_embeddings": True},
    ),
}
