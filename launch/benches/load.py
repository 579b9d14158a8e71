"""Host memory while a published checkpoint is loaded.

Writes a random Llama of a given size as bfloat16 safetensors in four files, loads it in a process
of its own, and gives the peak of that process's resident memory, everything that JAX itself takes
included, over the size of the parameters. One CPU device holds the whole tree, so the tree is part
of the peak: 1.0 would be the tree alone. `growth` leaves out what the process had before.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import ml_dtypes
import numpy as np

from spade_jax.policy import export, places, sizes, tensors

_GIGABYTES = (1, 2, 8)
_TARGET = 1.3
_FILES = 4
_CHILD = """
import json, resource, sys
import jax
from spade_jax.policy import load
jax.block_until_ready(jax.numpy.ones(8) + 1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
params, _ = load.load(sys.argv[1], param_dtype="bfloat16", compute_dtype="bfloat16")
jax.block_until_ready(params)
held = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"before": before, "peak": peak, "held": held}))
"""


def measure(only: str) -> Iterator[dict]:
    """Yield one measurement per size that fits this machine's free memory and disk."""
    for gigabytes in _GIGABYTES:
        name = f"load/{gigabytes}gb"
        if only not in name:
            continue
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if free < 1.6e9 * gigabytes:
            yield {"name": name, "value": "left out", "unit": "", "free_gb": round(free / 1e9, 1)}
            continue
        with tempfile.TemporaryDirectory() as folder:
            _write(pathlib.Path(folder), gigabytes)
            found = _load(folder)
        grown = (found["peak"] - found["before"]) / found["held"]
        yield {
            "name": name,
            "value": found["peak"] / found["held"],
            "unit": "peak/size",
            "target": _TARGET,
            "growth": round(grown, 3),
            "size_gb": round(found["held"] / 1e9, 2),
            "peak_gb": round(found["peak"] / 1e9, 2),
        }


def _write(folder: pathlib.Path, gigabytes: int) -> None:
    """Embeddings and output are 0.26 GB, every layer 0.126 GB."""
    config = sizes.ModelConfig(
        vocab_size=32000,
        layers=round((gigabytes - 0.26) / 0.126),
        width=2048,
        heads=16,
        kv_heads=8,
        head_dim=128,
        mlp_width=8192,
        param_dtype="bfloat16",
        tied_embeddings=False,
    )
    # One block of numbers stands in every tensor: what is measured does not depend on them.
    block = np.random.default_rng(0).standard_normal(1 << 22, np.float32) * 0.02
    block = block.astype(ml_dtypes.bfloat16)
    wanted = places.of(config)
    share, index = -(-len(wanted) // _FILES), {}
    for number in range(_FILES):
        part = wanted[number * share : (number + 1) * share]
        shapes = {place.name: (ml_dtypes.bfloat16, place.shape) for place in part}
        file = f"model-{number + 1:05}-of-{_FILES:05}.safetensors"
        tensors.write(folder / file, shapes, lambda n, s=shapes: np.resize(block, s[n][1]))
        index.update(dict.fromkeys(shapes, file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (folder / "config.json").write_text(json.dumps(export.describe(config)))


def _load(folder: str) -> dict:
    environment = {**os.environ, "XLA_FLAGS": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _CHILD, folder]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the loading process failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
