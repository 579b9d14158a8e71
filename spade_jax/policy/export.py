"""Parameters back to a Hugging Face directory that transformers loads, and role heads as adapters.

Comes in: a parameter tree, its ModelConfig and, for what no tree holds (tokenizer, chat template),
the checkpoint it came from. Goes out: `config.json`, safetensors in files of bounded size, and for
a "lowrank" head one PEFT LoRA adapter per role, since that head is a low-rank change of lm_head.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import pathlib
import shutil
from typing import Any

import jax
import numpy as np

from spade_jax.policy import places, sizes, tensors

# What belongs to the tokenizer and to sampling, copied as it is.
_COPIED = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json"),
    *("merges.txt", "chat_template.jinja", "generation_config.json", "added_tokens.json"),
)
# What no ModelConfig holds; families' own defaults for token ids would fit their first vocabulary.
_KEPT = {
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "max_position_embeddings": 32768,
}
_CLASSES = {
    "llama": "LlamaForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
}


def write(
    folder: str | os.PathLike,
    params: dict,
    config: sizes.ModelConfig,
    *,
    like: str | os.PathLike | None = None,
    role: int | None = None,
    file_bytes: int = 4 << 30,
) -> None:
    """Write a Hugging Face directory.

    Args:
        folder: made anew; it must not hold a model yet.
        params: as from `transformer.init`, on devices or on the host.
        config: the model's.
        like: directory whose tokenizer, chat template, generation configuration and token ids are
            copied.
        role: whose output projection becomes lm_head; needed for a "separate" head. A "lowrank"
            head is not part of these files, see `write_adapter`.
        file_bytes: most bytes of one safetensors file, unless one tensor has more.
    Raises:
        FileExistsError: the folder holds a model.
        ValueError: options that no family has together, or a role that is missing.
    """
    folder = pathlib.Path(folder)
    if (folder / "config.json").exists():
        raise FileExistsError(f"{folder} already holds a model; export to another directory.")
    if config.role_head == "separate" and role is None:
        raise ValueError("a 'separate' head has one lm_head per role: say which role to export.")
    described = {**_kept(like), **describe(config)}
    folder.mkdir(parents=True, exist_ok=True)
    chosen = _chosen(config, role)
    parts = _split(chosen, np.dtype(config.param_dtype).itemsize, file_bytes)
    index = {}
    for number, part in enumerate(parts):
        name = "model.safetensors"
        if len(parts) > 1:
            name = f"model-{number + 1:05}-of-{len(parts):05}.safetensors"
        headers = {place.name: (config.param_dtype, place.shape) for place in part}
        by_name = {place.name: place for place in part}
        tensors.write(folder / name, headers, lambda n, b=by_name: _tensor(params, b[n]))
        index.update(dict.fromkeys(headers, name))
    if len(parts) > 1:
        total = sum(math.prod(place.shape) for place in chosen)
        size = {"total_size": total * np.dtype(config.param_dtype).itemsize}
        _write_json(
            folder / "model.safetensors.index.json", {"metadata": size, "weight_map": index}
        )
    for name in _COPIED:
        if like is not None and (pathlib.Path(like) / name).is_file():
            shutil.copyfile(pathlib.Path(like) / name, folder / name)
    _write_json(folder / "config.json", described)  # last: it marks the directory as whole


def write_adapter(
    folder: str | os.PathLike, params: dict, config: sizes.ModelConfig, role: int, base: str
) -> None:
    """Write the "lowrank" head of one role as a LoRA adapter on lm_head.

    Args:
        folder: of the adapter.
        params: as from `transformer.init`.
        config: the model's.
        role: records.DESIGNER or records.AGENT.
        base: directory or name of the model that the adapter belongs to.
    Raises:
        ValueError: the head is not "lowrank".
    """
    if config.role_head != "lowrank":
        raise ValueError(f"a {config.role_head!r} head is no low-rank change and has no adapter.")
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    halves = {"lora_A": "lowrank_in", "lora_B": "lowrank_out"}
    read = {
        f"base_model.model.lm_head.{name}.weight": np.asarray(params["head"][leaf][role]).T
        for name, leaf in halves.items()
    }
    headers = {name: (array.dtype, array.shape) for name, array in read.items()}
    tensors.write(folder / "adapter_model.safetensors", headers, read.__getitem__)
    described = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "target_modules": ["lm_head"],
        "r": config.role_rank,
        "lora_alpha": config.role_rank,  # alpha / r scales the product: by 1
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
    }
    _write_json(folder / "adapter_config.json", described)


def describe(config: sizes.ModelConfig) -> dict[str, Any]:
    """Write a `config.json` in the spelling of transformers 5, which its version 4 reads as well.

    Raises:
        ValueError: options that no family has together.
    """
    family = _family(config)
    described = {
        "architectures": [_CLASSES[family]],
        "model_type": family,
        "vocab_size": config.vocab_size,
        "num_hidden_layers": config.layers,
        "hidden_size": config.width,
        "intermediate_size": config.mlp_width,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tied_embeddings and config.role_head != "separate",
        "dtype": config.param_dtype,
        "torch_dtype": config.param_dtype,
        **_rope(config),
    }
    if config.activation == "silu":
        described["hidden_act"] = "silu"
    else:
        described["hidden_activation"] = "gelu_pytorch_tanh"
    if config.window:
        kinds = ("full_attention", "sliding_attention")
        described["layer_types"] = [kinds[flag] for flag in config.window_layers]
        described["sliding_window"] = config.window
        described["use_sliding_window"] = True
    return {**described, **_extras(config, family)}


def _extras(config: sizes.ModelConfig, family: str) -> dict[str, Any]:
    if family == "qwen3_moe":
        return {
            "num_experts": config.experts,
            "num_local_experts": config.experts,
            "num_experts_per_tok": config.experts_per_token,
            "moe_intermediate_size": config.mlp_width,
            "norm_topk_prob": config.norm_expert_weights,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }
    if family == "smollm3":
        return {"no_rope_layers": list(config.rope_layers)}
    if family.startswith("gemma"):
        scalar = config.query_scale**-2 if config.query_scale else config.head_dim
        return {
            "query_pre_attn_scalar": round(scalar),
            "attn_logit_softcapping": config.attention_softcap or None,
            "final_logit_softcapping": config.logit_softcap or None,
        }
    return {}


def _family(config: sizes.ModelConfig) -> str:
    """Find the family whose options these are; a config that none has is refused."""
    gemma = "gemma3_text" if config.qk_norm else "gemma2"
    dense = "smollm3" if config.rope_layers else "llama"
    family = dense
    if config.post_norms:
        family = gemma
    elif config.experts:
        family = "qwen3_moe"
    elif config.qk_norm:
        family = "qwen3"
    elif config.attention_bias:
        family = "qwen2"
    has = dict(
        norm_offset=1.0 if family.startswith("gemma") else 0.0,
        qk_norm=family in ("qwen3", "qwen3_moe", "gemma3_text"),
        attention_bias=family == "qwen2",
        rope_layers=config.rope_layers if family == "smollm3" else (),
        experts=config.experts if family == "qwen3_moe" else 0,
        activation="gelu_tanh" if family.startswith("gemma") else "silu",
        window=0 if family == "llama" else config.window,
    )
    for name, value in has.items():
        if getattr(config, name) != value:
            raise ValueError(
                f"model.{name}={getattr(config, name)} in a model that looks like {family}: no "
                f"family of transformers has these options together, so it cannot be exported."
            )
    return family


def _rope(config: sizes.ModelConfig) -> dict[str, Any]:
    rope = {"rope_theta": config.rope_theta, "rope_type": "default"}
    scaling = config.rope_scaling
    if scaling is not None:
        rope.update(rope_type=scaling.kind, factor=scaling.factor)
        rope["original_max_position_embeddings"] = scaling.original_positions
        if scaling.kind == "llama3":
            rope["low_freq_factor"] = scaling.low_freq_factor
            rope["high_freq_factor"] = scaling.high_freq_factor
        if scaling.kind == "yarn":
            rope.update(beta_fast=scaling.beta_fast, beta_slow=scaling.beta_slow)
            rope["attention_factor"] = scaling.attention_factor or None
    if config.window_rope_theta:
        local = {"rope_theta": config.window_rope_theta, "rope_type": "default"}
        kinds = {"full_attention": rope, "sliding_attention": local}
        return {"rope_parameters": kinds, "rope_local_base_freq": config.window_rope_theta}
    return {"rope_parameters": rope, "rope_theta": config.rope_theta}


def _kept(like) -> dict[str, Any]:
    path = None if like is None else pathlib.Path(like) / "config.json"
    given = json.loads(path.read_text()) if path is not None and path.is_file() else {}
    return {name: given.get(name, default) for name, default in _KEPT.items()}


def _chosen(config: sizes.ModelConfig, role: int | None) -> list[places.Place]:
    """One place per tensor: of a "separate" head the one of the role, as an lm_head of its own."""
    chosen = {}
    for place in places.of(config):
        if place.path == ("head", "roles_ADV"):
            if place.index == (role,):
                chosen["lm_head.weight"] = dataclasses.replace(place, name="lm_head.weight")
        else:
            chosen[place.name] = place
    return list(chosen.values())


def _split(chosen: list, item_bytes: int, file_bytes: int) -> list[list[places.Place]]:
    parts, held = [[]], 0
    for place in chosen:
        size = math.prod(place.shape) * item_bytes
        if parts[-1] and held + size > file_bytes:
            parts.append([])
            held = 0
        parts[-1].append(place)
        held += size
    return parts


def _tensor(params: dict, place: places.Place) -> np.ndarray:
    leaf = functools.reduce(lambda part, name: part[name], place.path, params)
    return place.turn_back(np.asarray(jax.device_get(leaf[place.index])))


def _write_json(path: pathlib.Path, content: dict) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
