"""The forward pass against torch's numbers, and its speed beside transformers where that is here.

Parity reads the tiny checkpoints of the tests, whose answers transformers gave in float32. Speed
needs torch and transformers in the path of this Python; weights are random, sizes SmolLM2-135M's.
"""

from __future__ import annotations

import functools
import pathlib
import statistics
import tempfile
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from spade_jax.policy import export, families, heads, load, transformer

_TINY = pathlib.Path(__file__).parents[2] / "tests" / "data" / "hf_tiny"
_TARGET = 2e-4
_ROWS, _TOKENS, _REPEATS = 8, 128, 5


def measure(only: str) -> Iterator[dict]:
    """Yield the largest difference per family, then the speed."""
    for folder in sorted(_TINY.iterdir()):
        if only in f"forward/parity/{folder.name}":
            yield {
                "name": f"forward/parity/{folder.name}",
                "value": _difference(folder),
                "unit": "logits",
                "target": _TARGET,
            }
    if only in "forward/speed":
        yield _speed()


def _difference(folder: pathlib.Path) -> float:
    params, config = load.load(folder)
    stored = np.load(folder / "io.npz")
    real = stored["attn"] == 1
    found = _logits(params, config, stored["ids"], stored["pos"], stored["attn"])
    return float(np.abs(np.asarray(found) - stored["logits"])[real].max())


def _speed() -> dict:
    try:
        import torch
        import transformers
    except ImportError as error:
        return {"name": "forward/speed", "value": f"no peer ({error.name})", "unit": ""}
    config = families.named("SmolLM2-135M")
    params = transformer.init(config, jax.random.key(0))
    ids = np.random.default_rng(0).integers(0, config.vocab_size, (_ROWS, _TOKENS))
    places = np.broadcast_to(np.arange(_TOKENS), ids.shape)
    with tempfile.TemporaryDirectory() as folder:
        export.write(pathlib.Path(folder) / "model", params, config)
        peer = transformers.AutoModelForCausalLM.from_pretrained(f"{folder}/model")

    def ours():
        return np.asarray(_logits(params, config, ids, places, np.ones_like(ids)))

    def theirs():
        with torch.no_grad():
            return peer(torch.from_numpy(ids)).logits.numpy()

    difference = float(np.abs(ours() - theirs()).max())  # also compiles
    seconds = {ours: [], theirs: []}
    for _ in range(_REPEATS):
        for run, taken in seconds.items():
            start = time.perf_counter()
            run()
            taken.append(time.perf_counter() - start)
    mine, peers = (statistics.median(taken) for taken in seconds.values())
    return {
        "name": "forward/speed",
        "value": _ROWS * _TOKENS / mine,
        "unit": "tokens/s",
        "ratio": round(peers / mine, 2),
        "against": f"transformers {transformers.__version__} float32",
        "difference": difference,
    }


@functools.partial(jax.jit, static_argnames="config")
def _logits(params, config, ids, places, segments):
    hidden = transformer.forward(params, config, ids, places, segments)
    return heads.logits(params, config, hidden, jnp.zeros(len(ids), jnp.int32))
