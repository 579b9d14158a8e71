"""GGUF files: metadata as a Hugging Face configuration, tensors under Hugging Face names.

The `gguf` library reads the header and turns quantised blocks into float32; one tensor is read at a
time. The converters that write GGUF reorder Llama's query and key rows and add 1 to Gemma's norms;
both are undone here.

Source: https://github.com/ggml-org/llama.cpp, convert_hf_to_gguf.py and gguf-py.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import re
from collections.abc import Callable

import gguf
import numpy as np

from spade_jax.policy import tensors

CheckpointError = tensors.CheckpointError

# Architecture -> model_type, and whether query and key rows are interleaved for its rotation.
_ARCHITECTURES = {
    "llama": ("llama", True),
    "smollm3": ("smollm3", True),
    "qwen2": ("qwen2", False),
    "qwen3": ("qwen3", False),
    "qwen3moe": ("qwen3_moe", False),
    "gemma2": ("gemma2", False),
    "gemma3": ("gemma3_text", False),
}
_KEYS = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
    "sliding_window": "attention.sliding_window",
    "max_position_embeddings": "context_length",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
_ENDS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_PARTS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_FACTORS = "rope_freqs.weight"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stored:
    """Where a tensor stands, and how it is read."""

    file: pathlib.Path
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]  # gives float32


def read_config(path: pathlib.Path) -> dict:
    """Write the metadata as a `config.json`.

    Raises:
        CheckpointError: not a GGUF file, cut, or of an architecture that is not supported.
    """
    reader = open_file(path)
    architecture, (family, _) = _architecture(path, reader)
    config = {"model_type": family}
    for name, key in _KEYS.items():
        field = reader.fields.get(f"{architecture}.{key}")
        if field is not None:
            value = field.contents()
            # Stored as float32: 1e-6 and not 9.99999997e-07 is what was meant.
            config[name] = float(str(np.float32(value))) if isinstance(value, float) else value
    shapes = {tensor.name: tensor for tensor in reader.tensors}
    if "token_embd.weight" not in shapes:
        raise CheckpointError(f"{path} lacks tensor token_embd.weight.")
    config["vocab_size"] = int(shapes["token_embd.weight"].shape[1])
    config["tie_word_embeddings"] = "output.weight" not in shapes
    config["norm_topk_prob"] = True  # llama.cpp does so for every Qwen3-MoE
    if family.startswith("gemma"):
        config["hidden_act"] = "gelu_pytorch_tanh"
        width, heads = config["hidden_size"], config["num_attention_heads"]
        # llama.cpp scales by the head size, except in the 27B models of both generations.
        large = config["num_hidden_layers"] in (46, 62)
        config["query_pre_attn_scalar"] = width // heads if large else config["head_dim"]
    config["rope_scaling"] = _rope_scaling(path, reader, architecture, config, shapes)
    return config


def scan(path: pathlib.Path) -> dict[str, Stored]:
    """Find all tensors under their Hugging Face names, in the order in which they are stored.

    Raises:
        CheckpointError: as `read_config`, or a tensor of unknown name or type.
    """
    reader = open_file(path)
    _, (family, interleaved) = _architecture(path, reader)
    config, found = read_config(path), {}
    for tensor in reader.tensors:
        if tensor.name == _FACTORS:
            continue
        name, read = _name(path, tensor.name, family), _reader(path, tensor)
        shape = tuple(int(size) for size in reversed(tensor.shape))
        if "_exps." in tensor.name:
            for expert in range(shape[0]):
                part = Stored(file=path, shape=shape[1:], read=_reader(path, tensor, expert))
                found[name.format(expert=expert)] = part
            continue
        if interleaved and re.search(r"attn_[qk]\.", tensor.name):
            kind = "num_attention_heads" if ".attn_q." in tensor.name else "num_key_value_heads"
            read = _composed(lambda x, n=config[kind]: _half_split(x, n), read)
        if family.startswith("gemma") and "norm" in name:
            read = _composed(lambda x: x - 1, read)
        found[name] = Stored(file=path, shape=shape, read=read)
    return found


def open_file(path: pathlib.Path) -> gguf.GGUFReader:
    """Read the header; raises CheckpointError for what is no GGUF file or is cut."""
    try:
        return _Reader(path)
    except CheckpointError:
        raise
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise CheckpointError(f"{path} is no readable GGUF file, or cut ({error}).") from error


class _Reader(gguf.GGUFReader):
    """Names the tensor that a cut file ends in; the library's own error does not."""

    def _build_tensors(self, start_offs, fields):
        for field in fields:
            _, name, _, dims, dtype, offset = field.parts
            block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(int(dtype[0]))]
            length = math.prod(int(dim) for dim in dims) // block * size
            if start_offs + int(offset[0]) + length > len(self.data):
                raise CheckpointError(
                    f"{pathlib.Path(self.data.filename)} is cut: it ends at byte "
                    f"{len(self.data)}, within tensor {bytes(name).decode()}. Copy or download it "
                    f"again."
                )
        super()._build_tensors(start_offs, fields)


def _architecture(path, reader) -> tuple[str, tuple[str, bool]]:
    field = reader.fields.get("general.architecture")
    name = field.contents() if field is not None else None
    if name not in _ARCHITECTURES:
        raise CheckpointError(
            f"{path}: architecture {name!r} is not supported; {', '.join(_ARCHITECTURES)} are."
        )
    return name, _ARCHITECTURES[name]


def _name(path, name: str, family: str) -> str:
    """Give the Hugging Face name; experts keep a place to fill in."""
    if name in _ENDS:
        return _ENDS[name]
    found = re.fullmatch(r"blk\.(\d+)\.(\w+?)(_exps)?\.(weight|bias)", name)
    layer, part, experts, kind = found.groups() if found else (None, None, None, None)
    parts = _PARTS
    if part == "ffn_norm":
        norm = (
            "pre_feedforward_layernorm"
            if family.startswith("gemma")
            else "post_attention_layernorm"
        )
        parts = {"ffn_norm": norm}
    if part not in parts:
        raise CheckpointError(f"{path}: tensor {name} has no place in a {family} model.")
    place = parts[part].replace("mlp.", "mlp.experts.{expert}.") if experts else parts[part]
    return f"model.layers.{layer}.{place}.{kind}"


def _reader(path, tensor, expert: int | None = None) -> Callable[[], np.ndarray]:
    """Read and turn into float32, from the file and not from the mapped pages."""
    kind, start, size = tensor.tensor_type, int(tensor.data_offset), int(tensor.n_bytes)
    shape = tuple(int(part) for part in reversed(tensor.shape))
    if expert is not None:
        start, size, shape = start + expert * (size // shape[0]), size // shape[0], shape[1:]

    def read() -> np.ndarray:
        with path.open("rb") as file:
            file.seek(start)
            raw = np.frombuffer(file.read(size), np.uint8)
        try:
            numbers = gguf.quants.dequantize(raw.reshape(math.prod(shape[:-1]), -1), kind)
        except NotImplementedError as error:
            raise CheckpointError(
                f"{path}: tensor {tensor.name} is quantised as {kind.name}, which cannot be read."
            ) from error
        return numbers.reshape(shape)

    return read


def _composed(outer: Callable, inner: Callable) -> Callable[[], np.ndarray]:
    return lambda: outer(inner())


def _half_split(rows: np.ndarray, heads: int) -> np.ndarray:
    """Undo the interleaving of rotated channel pairs."""
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def _rope_scaling(path, reader, architecture, config, shapes) -> dict | None:
    kind = reader.fields.get(f"{architecture}.rope.scaling.type")
    kind = kind.contents() if kind is not None else "none"
    if kind in ("linear", "yarn"):
        stem = f"{architecture}.rope.scaling"
        scaling = {"rope_type": kind, "factor": reader.fields[f"{stem}.factor"].contents()}
        original = reader.fields.get(f"{stem}.original_context_length")
        if original is not None:
            scaling["original_max_position_embeddings"] = original.contents()
        return scaling
    if _FACTORS not in shapes:
        return None
    return _llama3(path, config, _reader(path, shapes[_FACTORS])())


def _llama3(path, config, factors_C: np.ndarray) -> dict:
    """Find the scaling that Llama 3 stores as one factor per channel pair."""
    scaling = {
        "rope_type": "llama3",
        "factor": float(factors_C.max()),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    pairs = len(factors_C)
    plain_C = config["rope_theta"] ** (-np.arange(pairs) / pairs)
    kept_C = np.clip((8192 * plain_C / (2 * np.pi) - 1.0) / 3.0, 0, 1)
    stated_C = 1 / (kept_C + (1 - kept_C) / scaling["factor"])
    if not np.allclose(stated_C, factors_C, rtol=1e-3):
        raise CheckpointError(
            f"{path}: tensor {_FACTORS} does not hold the scaling of Llama 3 (8,192 positions, "
            f"factors 1 and 4), and no other one can be read."
        )
    return scaling
