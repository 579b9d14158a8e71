"""How fast the sampler writes, beside transformers' `generate`, and what its options cost.

    python -m launch.bench sampler --only=decode

`decode`: SmolLM2-135M's shape, prompts of 128 tokens, 128 new ones. The peer runs in a process of
its own, with the Python that SPADE_JAX_PEER names (torch and transformers are not dependencies),
and takes turns with ours. `ragged`: replies of 16 to 512 tokens in two turns, against batches that
wait for their longest member. `group`: 16 plays of one prompt of 512 tokens, in prefills.
`agreement`: log-probabilities of the sampler against the trainer's. `bits`: the same, 8-bit.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import jax
import numpy as np

from spade_jax.policy import heads, sampler, transformer

SHAPE = transformer.ModelConfig(  # of SmolLM2-135M
    vocab_size=49152,
    layers=30,
    width=576,
    heads=9,
    kv_heads=3,
    head_dim=64,
    mlp_width=1536,
    rope_theta=100000.0,
    norm_eps=1e-5,
)
SMALL = transformer.ModelConfig(
    vocab_size=4096, layers=6, width=256, heads=8, kv_heads=4, head_dim=32, mlp_width=704
)
_TOKENS = 128  # of a prompt, and of a reply
_DTYPES = ("bfloat16", "float32")


def measure(only: str) -> Iterator[dict]:
    """Yield the measurements whose name contains a text."""
    parts = {
        "decode 16": lambda: _decode(16, 1.2),
        "decode 64": lambda: _decode(64, 1.5),
        "ragged": _ragged,
        "group": _group,
        "agreement float32": lambda: _agreement("float32", "max", 1e-4),
        "agreement bfloat16": lambda: _agreement("bfloat16", "mean", 1e-2),
        "bits weights": lambda: _bits(weight_bits=8),
        "bits cache": lambda: _bits(cache_bits=8),
    }
    for name, run in parts.items():
        if only in name:
            for measurement in run():
                yield {"name": name, **measurement}


def _decode(batch: int, target: float, rounds: int = 3) -> Iterator[dict]:
    """Our better dtype against the peer's better one."""
    prompts = np.random.default_rng(0).integers(3, 49000, (batch, _TOKENS)).tolist()
    sampling = sampler.SamplingConfig(max_tokens=_TOKENS)

    def bound(dtype: str):
        config = dataclasses.replace(SHAPE, param_dtype=dtype, compute_dtype=dtype)
        params = transformer.init(config, jax.random.key(0))
        engine = sampler.Sampler(config, end_ids=(0,), max_length=256, batch_buckets=(batch,))

        def run() -> float:
            begun = time.perf_counter()
            replies = engine.generate(params, prompts, [1] * batch, range(batch), sampling)
            return sum(len(reply.ids) for reply in replies) / (time.perf_counter() - begun)

        run()  # compiles
        return run

    ours = {dtype: bound(dtype) for dtype in _DTYPES}
    mine, peers = {dtype: [] for dtype in _DTYPES}, {dtype: [] for dtype in _DTYPES}
    with _Peer() as peer:
        for _ in range(rounds):
            for dtype in _DTYPES:
                mine[dtype].append(ours[dtype]())
                if not peer.missing:
                    peers[dtype].append(peer.ask(batch=batch, tokens=_TOKENS, dtype=dtype))
    best, speed = _best(mine)
    told = {"value": speed, "unit": "tokens/s", "dtype": best}
    if peer.missing:
        yield told | {"against": peer.missing}
        return
    dtype, theirs = _best(peers)
    held = {"ratio": round(speed / theirs, 2), "target": target}
    yield told | held | {"against": f"transformers {dtype} {theirs:.0f} tokens/s"}


def _best(speeds: dict[str, list[float]]) -> tuple[str, float]:
    medians = {dtype: statistics.median(kept) for dtype, kept in speeds.items()}
    return max(medians.items(), key=lambda pair: pair[1])


class _Peer:
    """Owns the process that runs transformers."""

    def __enter__(self):
        python = os.environ.get("SPADE_JAX_PEER", sys.executable)
        self._process = subprocess.Popen(
            [python, "-c", _PEER_PROGRAM, json.dumps(_peer_config())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        ready = self._process.stdout.readline().strip() == "ready"
        self.missing = "" if ready else f"no peer: {python} cannot import torch and transformers"
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()

    def ask(self, **request) -> float:
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


def _peer_config() -> dict:
    return {
        "vocab_size": SHAPE.vocab_size,
        "num_hidden_layers": SHAPE.layers,
        "hidden_size": SHAPE.width,
        "num_attention_heads": SHAPE.heads,
        "num_key_value_heads": SHAPE.kv_heads,
        "intermediate_size": SHAPE.mlp_width,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    }


_PEER_PROGRAM = """
import json, sys, time
import torch, transformers
torch.manual_seed(0)
config = transformers.LlamaConfig(**json.loads(sys.argv[1]))
models = {}
print("ready", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    dtype = asked["dtype"]
    if dtype not in models:
        models[dtype] = transformers.LlamaForCausalLM(config).to(getattr(torch, dtype)).eval()
    prompts = torch.randint(3, 49000, (asked["batch"], asked["tokens"]))
    with torch.inference_mode():
        begun = time.perf_counter()
        models[dtype].generate(
            prompts, attention_mask=torch.ones_like(prompts), do_sample=True, top_k=0,
            min_new_tokens=asked["tokens"], max_new_tokens=asked["tokens"], pad_token_id=0,
        )
    print(asked["batch"] * asked["tokens"] / (time.perf_counter() - begun), flush=True)
"""


def _ragged(slots: int = 16, plays: int = 64, turns: int = 2, rounds: int = 3) -> Iterator[dict]:
    """Same replies, once as slots come free, once in batches that wait for the longest."""
    params = transformer.init(SMALL, jax.random.key(0))
    engine = sampler.Sampler(
        SMALL, end_ids=(0,), max_length=2048, batch_buckets=(slots,), rows=plays
    )
    rng = np.random.default_rng(1)
    prompts = rng.integers(3, 4000, (plays, 64)).tolist()
    lengths = np.exp(rng.uniform(np.log(16), np.log(512), (turns, plays))).astype(int)

    def play(members, session) -> float:
        begun = time.perf_counter()
        texts = [prompts[i] for i in members]
        for turn in range(turns):
            limits = [sampler.SamplingConfig(max_tokens=int(lengths[turn, i])) for i in members]
            replies = session.generate(texts, [1] * len(texts), members, limits)
            texts = [(*t, *r.ids, 7, 8, 9) for t, r in zip(texts, replies, strict=True)]
        return time.perf_counter() - begun

    def continuous() -> float:
        return play(list(range(plays)), engine.session(params))

    def static() -> float:
        batches = [list(range(i, i + slots)) for i in range(0, plays, slots)]
        return sum(play(members, engine.session(params)) for members in batches)

    for run in (continuous, static):
        run()
    pairs = [(continuous(), static()) for _ in range(rounds)]
    ours = statistics.median(pair[0] for pair in pairs)
    yield {
        "value": int(lengths.sum()) / ours,
        "unit": "tokens/s",
        "ratio": round(statistics.median(pair[1] / pair[0] for pair in pairs), 2),
        "against": f"static batches of {slots}",
        "target": 1.7,
    }


def _group(plays: int = 16, tokens: int = 512, rounds: int = 5) -> Iterator[dict]:
    """Time until every play of a group has its first token, in times of one play alone."""
    params = transformer.init(SHAPE, jax.random.key(0))
    engine = sampler.Sampler(SHAPE, end_ids=(0,), max_length=tokens + 8, batch_buckets=(1, plays))
    prompt = np.random.default_rng(2).integers(3, 49000, tokens).tolist()
    first = sampler.SamplingConfig(max_tokens=1)

    def begin(count: int) -> float:
        session = engine.session(params)
        begun = time.perf_counter()
        session.generate([prompt] * count, [1] * count, range(count), first)
        return time.perf_counter() - begun

    for count in (1, plays):
        begin(count)
    pairs = [(begin(1), begin(plays)) for _ in range(rounds)]
    yield {
        "value": statistics.median(pair[1] for pair in pairs),
        "unit": "s",
        "ratio": round(statistics.median(pair[1] / pair[0] for pair in pairs), 2),
        "against": "one play",
        "target": 1.3,
    }


def _agreement(dtype: str, what: str, target: float) -> Iterator[dict]:
    gaps = np.abs(_gaps(dtype))
    value = float(gaps.max() if what == "max" else gaps.mean())
    yield {"value": value, "unit": f"nats, {what}", "target": target, "tokens": gaps.size}


def _bits(**bits) -> Iterator[dict]:
    gaps = np.abs(_gaps("float32", **bits))
    yield {"value": float(gaps.mean()), "unit": "nats, mean", "max": float(gaps.max())}


def _gaps(dtype: str, plays: int = 16, **bits) -> np.ndarray:
    """Sample, and compare log-probabilities with those of the trainer's forward pass."""
    config = transformer.ModelConfig(**{**vars(SMALL), "compute_dtype": dtype})
    params = transformer.init(config, jax.random.key(0))
    params["embed"] = params["embed"] * 10  # logits of some spread, as a trained model has
    engine = sampler.Sampler(config, end_ids=(0,), max_length=128, batch_buckets=(plays,), **bits)
    prompts = np.random.default_rng(3).integers(3, 4000, (plays, 64)).tolist()
    sampling = sampler.SamplingConfig(max_tokens=64)
    replies = engine.generate(params, prompts, [1] * plays, range(plays), sampling)
    rows = np.zeros((plays, 128), np.int32)
    mask = np.zeros((plays, 128), bool)
    sampled = np.zeros((plays, 128), np.float32)
    for index, reply in enumerate(replies):
        end = 64 + len(reply.ids)
        rows[index, :end] = (*prompts[index], *reply.ids)
        mask[index, 64:end], sampled[index, 64:end] = True, reply.logps
    positions = np.broadcast_to(np.arange(128), rows.shape)
    hidden = transformer.forward(params, config, rows, positions, np.ones_like(rows))
    logps, _ = heads.token_logps(params, config, hidden[:, :-1], rows[:, 1:], np.ones(plays, int))
    return (np.asarray(logps) - sampled[:, 1:])[mask[:, 1:]]
