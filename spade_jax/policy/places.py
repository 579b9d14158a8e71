"""Where each tensor of a Hugging Face checkpoint stands in the tree, and how it is turned.

Comes in: a ModelConfig. Goes out: one `Place` per tensor and parameter. Loading and exporting read
the same list, so they cannot disagree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from spade_jax import records
from spade_jax.policy import sizes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """One tensor and its place: parameter[index] = tensor.reshape(split).transpose(order)."""

    name: str  # of the tensor
    path: tuple[str, ...]  # of the parameter
    index: tuple[int, ...]  # leading axes of the parameter: layer, expert or role
    shape: tuple[int, ...]  # of the tensor
    split: tuple[int, ...]
    order: tuple[int, ...]

    def turn(self, tensor: np.ndarray) -> np.ndarray:
        """Give the tensor as it stands in the parameter."""
        return tensor.reshape(self.split).transpose(self.order)

    def turn_back(self, part: np.ndarray) -> np.ndarray:
        """Undo `turn`."""
        return part.transpose(np.argsort(self.order)).reshape(self.shape)


def of(config: sizes.ModelConfig) -> list[Place]:
    """List the places of every tensor. Low-rank role heads have none: no checkpoint holds them."""
    found = list(_ends(config))
    for layer in range(config.layers):
        found += _attention(config, layer)
        found += _norms(config, layer)
        found += _experts(config, layer) if config.experts else _gated(config, layer)
    return found


def _ends(config: sizes.ModelConfig) -> Iterator[Place]:
    vocab, width = config.vocab_size, config.width
    embed, output = "model.embed_tokens.weight", "lm_head.weight"
    yield _plain(embed, ("embed",), (vocab, width))
    yield _plain("model.norm.weight", ("norm", "scale"), (width,))
    shared = embed if config.tied_embeddings else output
    if config.role_head == "separate":
        for role in range(len(records.ROLES)):
            yield _matrix(shared, ("head", "roles_ADV"), (role,), (vocab, width))
    elif not config.tied_embeddings:
        yield _matrix(output, ("head", "output_DV"), (), (vocab, width))


def _attention(config: sizes.ModelConfig, layer: int) -> Iterator[Place]:
    width, channels = config.width, config.head_dim
    stem, path = f"model.layers.{layer}.self_attn", ("layers", "attention")
    counts = {"q": config.heads, "k": config.kv_heads, "v": config.kv_heads}
    for letter, count in counts.items():
        axis = "H" if letter == "q" else "K"
        yield Place(
            name=f"{stem}.{letter}_proj.weight",
            path=(*path, f"{letter}_D{axis}C"),
            index=(layer,),
            shape=(count * channels, width),
            split=(count, channels, width),
            order=(2, 0, 1),
        )
        if config.attention_bias:
            name, leaf = f"{stem}.{letter}_proj.bias", f"{letter}_bias_{axis}C"
            yield Place(
                name=name,
                path=(*path, leaf),
                index=(layer,),
                shape=(count * channels,),
                split=(count, channels),
                order=(0, 1),
            )
        if config.qk_norm and letter != "v":
            name = f"{stem}.{letter}_norm.weight"
            yield _plain(name, (*path, f"{letter}_norm", "scale"), (channels,), (layer,))
    yield Place(
        name=f"{stem}.o_proj.weight",
        path=(*path, "o_HCD"),
        index=(layer,),
        shape=(width, config.heads * channels),
        split=(width, config.heads, channels),
        order=(1, 2, 0),
    )


def _norms(config: sizes.ModelConfig, layer: int) -> Iterator[Place]:
    names = {
        "attention_norm": "input_layernorm",
        "mlp_norm": "post_attention_layernorm",
    }
    if config.post_norms:  # Gemma puts one more norm behind each half
        names["attention_post_norm"] = "post_attention_layernorm"
        names["mlp_norm"] = "pre_feedforward_layernorm"
        names["mlp_post_norm"] = "post_feedforward_layernorm"
    for leaf, name in names.items():
        full = f"model.layers.{layer}.{name}.weight"
        yield _plain(full, ("layers", leaf, "scale"), (config.width,), (layer,))


def _gated(config: sizes.ModelConfig, layer: int) -> Iterator[Place]:
    stem = f"model.layers.{layer}.mlp"
    for part, leaf, shape in _three(config):
        yield _matrix(f"{stem}.{part}_proj.weight", ("layers", "mlp", leaf), (layer,), shape)


def _experts(config: sizes.ModelConfig, layer: int) -> Iterator[Place]:
    stem, path = f"model.layers.{layer}.mlp", ("layers", "mlp")
    shape = (config.experts, config.width)
    yield _matrix(f"{stem}.gate.weight", (*path, "router_DX"), (layer,), shape)
    for expert in range(config.experts):
        for part, leaf, shape in _three(config):
            name = f"{stem}.experts.{expert}.{part}_proj.weight"
            yield _matrix(name, (*path, leaf.replace("_", "_X")), (layer, expert), shape)


def _three(config: sizes.ModelConfig) -> tuple[tuple[str, str, tuple[int, int]], ...]:
    wide, narrow = (config.mlp_width, config.width), (config.width, config.mlp_width)
    return ("gate", "gate_DF", wide), ("up", "up_DF", wide), ("down", "down_FD", narrow)


def _plain(name, path, shape, index=()) -> Place:
    order = tuple(range(len(shape)))
    return Place(name=name, path=path, index=index, shape=shape, split=shape, order=order)


def _matrix(name, path, index, shape) -> Place:
    """A projection, stored as [out, in]."""
    return Place(name=name, path=path, index=index, shape=shape, split=shape, order=(1, 0))
