"""One file with a policy's parameters and config, for small policies that travel with the code.

A `.npz` archive: one array per parameter, named by its path, and the config as JSON text. Nothing
in it is pickled. Arrays may be stored at half width and are cast back on loading.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import zipfile

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from spade_jax import config as knobs
from spade_jax.policy import transformer

_CONFIG = "config.json"
_NOTE = "note.json"
_STORED = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def save(
    path: str | os.PathLike,
    params: dict,
    config: transformer.ModelConfig,
    *,
    dtype: str = "float32",
    note: dict | None = None,
):
    """Write parameters to one file; a reader sees the old file or the whole new one.

    Args:
        path: ends in ".npz".
        params: as from `transformer.init`.
        config: the model's.
        dtype: "float32", "float16" or "bfloat16", of the stored numbers.
        note: JSON values to keep with them, such as the command and seed that made them.
    Raises:
        ValueError: unknown dtype, or parameters too large for it.
    """
    if dtype not in _STORED:
        raise ValueError(f"dtype={dtype!r}; choose one of {tuple(_STORED)}.")
    arrays = {}
    for name, value in _flatten(jax.device_get(params)).items():
        with np.errstate(over="ignore"):  # the next line reports it with the name
            stored = value.astype(_STORED[dtype])
        if not np.isfinite(stored.astype(np.float32)).all():
            raise ValueError(f"parameter {name} is not finite as {dtype}; store it as float32.")
        # The format knows no bfloat16: its bits travel as uint16.
        arrays[name] = stored.view(np.uint16) if dtype == "bfloat16" else stored
    described = {"model": dataclasses.asdict(config), "dtype": dtype}
    arrays[_CONFIG] = np.asarray(json.dumps(described, sort_keys=True))
    arrays[_NOTE] = np.asarray(json.dumps(note or {}, sort_keys=True))
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with partial.open("wb") as file:
        np.savez_compressed(file, **arrays)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def load(path: str | os.PathLike) -> tuple[dict, transformer.ModelConfig]:
    """Read parameters, cast to the config's `param_dtype`, and their config.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not a file that `save` wrote, damaged, or parameters that do not fit its config.
    """
    arrays = _read(path)
    try:
        described = json.loads(str(arrays.pop(_CONFIG)))
        config = knobs.build(transformer.ModelConfig, described["model"])
        stored = described["dtype"]
    except (KeyError, TypeError, knobs.ConfigError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} holds no readable model config: {error!r}.") from error
    expected = _flatten(
        jax.eval_shape(lambda key: transformer.init(config, key), jax.random.key(0))
    )
    arrays.pop(_NOTE, None)
    for name in sorted(expected.keys() | arrays.keys()):
        wanted = expected[name].shape if name in expected else "nothing of that name"
        found = arrays[name].shape if name in arrays else "nothing of that name"
        if wanted != found:
            raise ValueError(f"{path}: parameter {name} is {found}; its config wants {wanted}.")
    params = {}
    for name, value in arrays.items():
        value = value.view(ml_dtypes.bfloat16) if stored == "bfloat16" else value
        *folders, leaf = name.split("/")
        place = params
        for folder in folders:
            place = place.setdefault(folder, {})
        place[leaf] = jnp.asarray(value, config.param_dtype)
    return params, config


def note(path: str | os.PathLike) -> dict:
    """Read what was noted when the file was written."""
    return json.loads(str(_read(path).get(_NOTE, "{}")))


def _read(path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is no readable parameter file ({type(error).__name__}). Restore it from "
            "version control, or make it anew with experiments/warmstart.py."
        ) from error


def _flatten(tree: dict) -> dict:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {"/".join(entry.key for entry in path): leaf for path, leaf in leaves}
