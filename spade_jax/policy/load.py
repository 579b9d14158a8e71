"""Published checkpoints into a parameter tree: Hugging Face directories and GGUF files.

Comes in: a path and, for several devices, a mesh. Goes out: parameters and their ModelConfig. The
tree is allocated first, already sharded; then the tensors are read one after the other, in the
order of the files, and each is put into its place on the devices. Host memory holds one tensor.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spade_jax.policy import families, gguf_file, places, sharding, tensors, transformer

CheckpointError = tensors.CheckpointError

# Tensors that some checkpoints carry and no forward pass of the text part needs.
_UNNEEDED = ("rotary_emb.inv_freq", "vision_tower.", "multi_modal_projector.", "vision_model.")


def load(
    path: str | os.PathLike,
    *,
    mesh: jax.sharding.Mesh | None = None,
    key: jax.Array | None = None,
    **changes: Any,
) -> tuple[dict, transformer.ModelConfig]:
    """Read a checkpoint.

    Args:
        path: a directory with `config.json` and safetensors, or a `.gguf` file.
        mesh: where parameters live, cut as `sharding` says; one device without it.
        key: draws what no checkpoint holds, the inner half of a "lowrank" head (whose outer half
            starts at zero); needed for that head only.
        **changes: fields of ModelConfig that are the user's: role_head, role_rank, dtypes, remat.
    Raises:
        CheckpointError: anything wrong with the files; the text names file and tensor.
        FileNotFoundError: no such path.
    """
    path = pathlib.Path(path)
    config = read_config(path, **changes)
    if config.role_head == "lowrank" and key is None:
        raise ValueError("role_head='lowrank' draws parameters that no checkpoint has: give a key.")
    found = tensors.scan(path) if path.is_dir() else gguf_file.scan(path)
    wanted = _match(path, config, {_plain_name(name): entry for name, entry in found.items()})
    return _Filling(config, mesh, key).fill(wanted), config


def read_config(path: str | os.PathLike, **changes: Any) -> transformer.ModelConfig:
    """Read the sizes of a checkpoint only; arguments and errors as of `load`."""
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(f"checkpoint {path} does not exist.")
    file = path / "config.json" if path.is_dir() else path
    given = read_json(file) if path.is_dir() else gguf_file.read_config(path)
    try:
        config = families.from_hugging_face(given, str(file))
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    return dataclasses.replace(config, **changes)


def read_json(path: pathlib.Path) -> dict:
    """Read a JSON file of a checkpoint.

    Raises:
        CheckpointError: it is missing or broken.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing: it is no Hugging Face directory.") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not readable JSON ({error}).") from error


def _plain_name(name: str) -> str:
    """Name the text part of a model with several parts as if it stood alone."""
    for prefix, plain in (("language_model.model.", "model."), ("model.language_model.", "model.")):
        if name.startswith(prefix):
            return plain + name.removeprefix(prefix)
    return name.removeprefix("language_model.")


def _match(path, config, found: Mapping) -> list[tuple[Any, list[places.Place]]]:
    """Pair stored tensors with their places, in the order in which they are stored."""
    wanted: dict[str, list[places.Place]] = {}
    for place in places.of(config):
        wanted.setdefault(place.name, []).append(place)
    for name, group in wanted.items():
        if name not in found:
            raise CheckpointError(f"{path} lacks tensor {name}, which its configuration needs.")
        if found[name].shape != group[0].shape:
            raise CheckpointError(
                f"{found[name].file}: tensor {name} has shape {found[name].shape}; the "
                f"configuration of the model needs {group[0].shape}."
            )
    for name, entry in found.items():
        unneeded = any(part in name for part in _UNNEEDED)
        tied_copy = name == "lm_head.weight" and config.tied_embeddings
        if name not in wanted and not unneeded and not tied_copy:
            raise CheckpointError(
                f"{entry.file}: tensor {name} has no place in a model of its configuration."
            )
    return [(entry, wanted[name]) for name, entry in found.items() if name in wanted]


class _Filling:
    """The tree while it is filled: holds device buffers, each replaced by its successor."""

    def __init__(self, config, mesh, key):
        mesh = mesh or sharding.make_mesh(devices=jax.devices()[:1])
        self._mesh = mesh
        self._shardings = sharding.param_shardings(config, mesh)
        shapes = jax.eval_shape(lambda k: transformer.init(config, k), jax.random.key(0))
        self._params = jax.tree.map(_zeros, shapes, self._shardings)
        if config.role_head == "lowrank":
            head, path = self._params["head"], ("head", "lowrank_in")
            drawn = jax.random.normal(key, head["lowrank_in"].shape) * config.width**-0.5
            drawn = drawn.astype(config.param_dtype)
            head["lowrank_in"] = jax.device_put(drawn, _at(self._shardings, path))

    def fill(self, wanted: list) -> dict:
        """Read all tensors; gives the tree."""
        for entry, group in wanted:
            tensor = entry.read()
            for place in group:
                finite = self._put(place, place.turn(tensor))
                if not finite:
                    raise CheckpointError(
                        f"{entry.file}: tensor {place.name} holds numbers that are not finite."
                    )
        return self._params

    def _put(self, place: places.Place, piece: np.ndarray) -> bool:
        *folders, leaf = place.path
        parent = _at(self._params, folders)
        target = _at(self._shardings, place.path)
        cut = sharding.part_sharding(place.path, len(place.index), self._mesh)
        placed = jax.make_array_from_callback(piece.shape, cut, lambda index: piece[index])
        index = np.asarray(place.index, np.int32)
        parent[leaf], finite = _write(parent[leaf], placed, index, target)
        return bool(finite)


def _zeros(shape: jax.ShapeDtypeStruct, target: jax.sharding.NamedSharding) -> jax.Array:
    return jax.jit(lambda: jnp.zeros(shape.shape, shape.dtype), out_shardings=target)()


def _at(tree: dict, path) -> Any:
    return functools.reduce(lambda part, name: part[name], path, tree)


@functools.partial(jax.jit, donate_argnames="whole", static_argnames="target")
def _write(whole, piece, index, target):
    """Put a piece at the leading index, in place; say whether all of it is finite."""
    finite = jnp.all(jnp.isfinite(piece))
    spread = piece.astype(whole.dtype).reshape(*[1] * len(index), *piece.shape)
    start = (*index, *[0] * piece.ndim)
    whole = jax.lax.dynamic_update_slice(whole, spread, start)
    return jax.lax.with_sharding_constraint(whole, target), finite
