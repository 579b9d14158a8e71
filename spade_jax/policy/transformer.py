"""The policy: a decoder-only transformer, one definition for sampler and trainer.

Comes in: a ModelConfig and token ids. Goes out: the hidden states that `heads` turns into
log-probabilities. The layers are Flax NNX modules; at the edge they are split into a plain nested
dict of arrays, layers stacked on their first axis, so that one layer is traced and compiled
whatever the depth; what tells a layer from its neighbours (wavelengths, window) is scanned with the
parameters, see `stacked`. Weight layouts follow Llama, Qwen and Gemma (RMSNorm before each half,
rotary positions over half-split channels, grouped queries, gated feed-forward), so that their
checkpoints load by renaming and transposing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from spade_jax import records
from spade_jax.policy import attention, blocks, layout, rotary, sizes

# What the forward pass of a layer keeps for its backward pass, by `config.remat`.
_ATTENDED = jax.checkpoint_policies.save_only_these_names(attention.KEPT)
_PRODUCTS = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
REMAT = {
    "full": jax.checkpoint_policies.nothing_saveable,
    "attended": _ATTENDED,
    "dots": jax.checkpoint_policies.save_from_both_policies(_PRODUCTS, _ATTENDED),
}

# Logical axes of every parameter, in the layout of `init`; `rules.RULES` maps them to the mesh.
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
        "attention_post_norm": {"scale": ("layers", "norm")},
        "mlp": {
            "router_DX": ("layers", "embed", "norm"),
            "gate_XDF": ("layers", "experts", "embed", "mlp"),
            "up_XDF": ("layers", "experts", "embed", "mlp"),
            "down_XFD": ("layers", "experts", "mlp", "embed"),
            "gate_DF": ("layers", "embed", "mlp"),
            "up_DF": ("layers", "embed", "mlp"),
            "down_FD": ("layers", "mlp", "embed"),
        },
        "mlp_norm": {"scale": ("layers", "norm")},
        "mlp_post_norm": {"scale": ("layers", "norm")},
    },
    "head": {
        "output_DV": ("embed", "vocab"),
        "roles_ADV": ("roles", "embed", "vocab"),
        "lowrank_in": ("roles", "embed", "rank"),
        "lowrank_out": ("roles", "rank", "vocab"),
    },
}


ModelConfig = sizes.ModelConfig
RopeScaling = sizes.RopeScaling


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
    mesh: jax.sharding.Mesh | None = None,
    attend: Callable[..., jax.Array] | None = None,
) -> jax.Array:
    """Run the trunk over packed or padded rows.

    Args:
        params: as from `init`.
        tokens_BT: token ids; any valid id where the row is padding.
        positions_BT: position of each token within its own sequence, from 0.
        segments_BT: sequence number within the row, 0 for padding. A token attends to earlier
            tokens of the row with its own number, so rows may be packed and padded on any side.
        mesh: that rows and parameters are cut over; None leaves the layout to the partitioner.
        attend: as from `attention.choose`; None attends block by block.
    Returns:
        hidden_BTD after the final norm, in the compute dtype. Padding gives finite numbers
        without meaning.
    """
    return _walk(params, config, tokens_BT, positions_BT, segments_BT, None, mesh, attend)[0]


def expert_loads(
    params: dict,
    config: ModelConfig,
    tokens_BT: jax.Array,
    positions_BT: jax.Array,
    segments_BT: jax.Array,
) -> jax.Array:
    """Run the trunk and give loads_LX, see `moe.loads`; arguments as of `forward`.

    Raises:
        ValueError: a model without experts.
    """
    if not config.experts:
        raise ValueError("model.experts=0: a dense feed-forward has no expert loads.")

    def keep(module, hidden_BTD, attended_BTHC, k_BTKC, v_BTKC):
        return module.loads(hidden_BTD, attended_BTHC, segments_BT > 0)

    return _walk(params, config, tokens_BT, positions_BT, segments_BT, keep)[1]


def stacked(params: dict, config: ModelConfig) -> dict:
    """Give what a scan over the layers runs over: their parameters and what sets them apart."""
    alike = not config.rope_layers and not config.window_layers
    if alike:
        return params["layers"]
    flags = config.window_layers or (0,) * config.layers
    reach_L = np.where(np.asarray(flags) == 1, config.window, np.iinfo(np.int32).max)
    turns_LC = np.stack([rotary.frequencies(config, i) for i in range(config.layers)])
    kinds = {"reach": jnp.asarray(reach_L, jnp.int32), "frequencies_C": jnp.asarray(turns_LC)}
    return {**params["layers"], "kind": kinds}


def embed(params: dict, config: ModelConfig, tokens_BT: jax.Array) -> jax.Array:
    """Look up token ids: hidden_BTD in the compute dtype."""
    embedded_BTD = params["embed"][tokens_BT].astype(config.compute_dtype)
    if config.embed_scale == 1.0:
        return embedded_BTD
    return embedded_BTD * jnp.asarray(config.embed_scale, config.compute_dtype)


def final_norm(params: dict, config: ModelConfig, hidden_BTD: jax.Array) -> jax.Array:
    """Normalise the residual stream behind the last layer."""
    return blocks.rms_norm(hidden_BTD, params["norm"]["scale"], config)


def block(config: ModelConfig, layer_params: dict) -> Layer:
    """Join one layer's part of `stacked`, without the layer axis, to the module that uses it."""
    layer_params = dict(layer_params)
    kind = layer_params.pop("kind", None)
    if kind is None:
        kind = {"reach": None, "frequencies_C": rotary.frequencies(config)}
    return Layer(nnx.merge(_block_graph(config), layer_params), **kind)


def precision(config: ModelConfig):
    """Keep float32 products in float32 on accelerators that round them by default."""
    return jax.default_matmul_precision("highest" if config.compute_dtype == "float32" else None)


class Layer:
    """One layer at work, in two halves around the attention that training and decoding differ in.

    Lives within one trace; `reach` and `frequencies_C` are what sets the layer apart.
    """

    def __init__(self, module: blocks.Block, reach: jax.Array | None, frequencies_C: jax.Array):
        self._module = module
        self.reach = reach
        self._frequencies_C = frequencies_C

    def project(self, hidden_BTD, positions_BT):
        """Give queries BTHC, keys BTKC and values BTKC of this layer."""
        q_BTHC, k_BTKC, v_BTKC = self._module.project(hidden_BTD)
        q_BTHC = rotary.rotate(q_BTHC, positions_BT, self._frequencies_C)
        return q_BTHC, rotary.rotate(k_BTKC, positions_BT, self._frequencies_C), v_BTKC

    def sees(self, mask, apart):
        """Narrow a mask to this layer's window; `apart` counts tokens from key to query."""
        return mask if self.reach is None else mask & (apart < self.reach)

    def finish(self, hidden_BTD, attended_BTHC):
        """Add attention output and feed-forward output to the residual stream."""
        hidden_BTD = self._module.attended(hidden_BTD, attended_BTHC)
        return self._module.fed(hidden_BTD)

    def loads(self, hidden_BTD, attended_BTHC, counted_BT):
        """Give load_X of this layer's experts, see `moe.loads`."""
        hidden_BTD = self._module.attended(hidden_BTD, attended_BTHC)
        return self._module.loads(hidden_BTD, counted_BT)


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


def _walk(params, config, tokens_BT, positions_BT, segments_BT, keep, mesh=None, attend=None):
    """Scan over the layers: hidden_BTD behind the final norm, and what `keep` gives of each."""
    attend = attend or attention.choose("blockwise", None, config.attention_softcap)

    def layer(hidden_BTD, layer_params):
        layer_params = _gathered(config, layer_params, mesh)
        module = block(config, layer_params)
        q_BTHC, k_BTKC, v_BTKC = module.project(hidden_BTD, positions_BT)
        attended_BTHC = attend(q_BTHC, k_BTKC, v_BTKC, segments_BT, module.reach)
        kept = keep and keep(module, hidden_BTD, attended_BTHC, k_BTKC, v_BTKC)
        return layout.stream(module.finish(hidden_BTD, attended_BTHC), mesh), kept

    if config.remat != "none":  # scan already keeps the two passes apart
        layer = jax.checkpoint(layer, prevent_cse=False, policy=REMAT[config.remat])
    with precision(config):
        embedded_BTD = layout.stream(embed(params, config, tokens_BT), mesh)
        hidden_BTD, kept = jax.lax.scan(layer, embedded_BTD, stacked(params, config))
    return final_norm(params, config, hidden_BTD), kept


def _gathered(config, layer_params, mesh):
    """Gather a layer's weights; `kind` is no parameter."""
    layer_params = dict(layer_params)
    kind = {name: layer_params.pop(name) for name in ("kind",) if name in layer_params}
    return layout.gathered(layer_params, AXES["layers"], config.compute_dtype, mesh) | kind


def _split_block(config: ModelConfig, draw: blocks.Draw) -> tuple[nnx.GraphDef, dict]:
    graph, state = nnx.split(blocks.Block(config, draw))
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


def _init_ends(config: ModelConfig, draw: blocks.Draw) -> dict:
    """Everything but the layers: embedding, final norm, output heads."""
    dtype, width, vocab = jnp.dtype(config.param_dtype), config.width, config.vocab_size
    ends = {
        "embed": (draw((vocab, width)) * 0.02).astype(dtype),
        "norm": {"scale": blocks.unit_scale(config, width)},
    }
    head = {}
    if config.role_head == "separate":
        shared_DV = ends["embed"].T
        if not config.tied_embeddings:
            shared_DV = (draw((width, vocab)) * width**-0.5).astype(dtype)
        # Every role starts with the shared projection.
        head["roles_ADV"] = jnp.stack([shared_DV] * len(records.ROLES))
    elif not config.tied_embeddings:
        head["output_DV"] = (draw((width, vocab)) * width**-0.5).astype(dtype)
    if config.role_head == "lowrank":
        roles, rank = len(records.ROLES), config.role_rank
        head["lowrank_in"] = (draw((roles, width, rank)) * width**-0.5).astype(dtype)
        # Zero, so that every role starts with the shared projection.
        head["lowrank_out"] = jnp.zeros((roles, rank, vocab), dtype)
    return {**ends, "head": head} if head else ends
