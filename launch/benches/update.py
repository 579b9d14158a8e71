"""The update: memory of the loss, share of real slots, speed beside torch, host memory over steps.

Shapes are those of SmolLM2-135M with random weights; nothing is downloaded. The torch step runs in
an environment of its own, named by PEER below; where that is missing the line says so.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import statistics
import subprocess
import time
from collections.abc import Iterator

PEER = pathlib.Path("/tmp/peer/bin/python")  # torch, transformers
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LENGTHS = ROOT / "tests" / "data" / "quickstart_lengths.json"
ROWS, TOKENS = 8, 1024  # 8,192 tokens
VOCABULARY = 49152
ROUNDS = 2  # of each side, after one to warm up


def measure(only: str) -> Iterator[dict]:
    """Give the measurements whose name contains `only`."""
    parts = (
        ("memory of log-probabilities", memory),
        ("packing of the quickstart", packing),
        ("host memory over 200 steps", host_memory),
        ("gather for the sampler", gather),
        ("tokens per second", speed),
    )
    for name, part in parts:
        if only in name:
            yield from part(name)


def memory(name: str) -> Iterator[dict]:
    """Compile the gradient of the log-probabilities both ways; nothing runs."""
    import jax
    import jax.numpy as jnp

    from spade_jax.policy import heads

    rows, width = 8, 576

    def chunked(params, hidden_BTD, targets_BT, model):
        logps_BT, _ = heads.token_logps(
            params, model, hidden_BTD, targets_BT, jnp.zeros_like(targets_BT), chunk_tokens=1024
        )
        return logps_BT.sum()

    def naive(params, hidden_BTD, targets_BT, model):
        scores = heads.logits(params, model, hidden_BTD, jnp.zeros_like(targets_BT))
        logps = jax.nn.log_softmax(scores)
        return jnp.take_along_axis(logps, targets_BT[..., None], axis=-1).sum()

    def peak(function, tokens, vocabulary):
        model = dataclasses.replace(smol(), vocab_size=vocabulary)
        step = jax.jit(jax.grad(functools.partial(function, model=model), argnums=(0, 1)))
        given = (
            {"embed": jax.ShapeDtypeStruct((vocabulary, width), jnp.float32)},
            jax.ShapeDtypeStruct((rows, tokens, width), jnp.float32),
            jax.ShapeDtypeStruct((rows, tokens), jnp.int32),
        )
        return step.lower(*given).compile().memory_analysis().temp_size_in_bytes / 2**20

    ours, plain = peak(chunked, 2048, VOCABULARY), peak(naive, 2048, VOCABULARY)
    yield {
        "name": f"{name}, 8 x 2048",
        "value": round(ours),
        "unit": "MiB",
        "ratio": round(plain / ours, 1),
        "against": f"naive {plain:,.0f} MiB",
        "target": 3.0,
    }
    longer = peak(chunked, 4096, VOCABULARY)
    yield {
        "name": f"{name}, twice the tokens",
        "value": round(longer - ours),
        "unit": "MiB more",
        "against": f"logits of those tokens: {rows * 2048 * VOCABULARY * 4 / 2**20:,.0f} MiB",
    }


def packing(name: str) -> Iterator[dict]:
    """Pack the recorded lengths as `batch.build` does."""
    from spade_jax import batch, packing

    kept = json.loads(LENGTHS.read_text(encoding="utf-8"))
    config = batch.BatchConfig(row_tokens=kept["row_tokens"], rows_multiple=kept["rows_multiple"])
    lengths = [*kept["drafts"], *kept["plays"]]
    rows = batch.bucket(len(packing.fit(lengths, config.row_tokens)), config)
    share = sum(lengths) / (rows * config.row_tokens)
    yield {"name": name, "value": share, "unit": "real slots", "target": 0.9}


def host_memory(name: str) -> Iterator[dict]:
    """Take 200 steps of a tiny update; the slope of resident memory over the last 150."""
    import jax
    import numpy as np

    given = tiny()
    resident = []
    state = given.state
    for _ in range(200):
        state, report = given.step(state)
        jax.device_get(report)
        pages = pathlib.Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]
        resident.append(int(pages) * 4096 / 2**20)
    last = np.array(resident[50:])
    slope = np.polyfit(np.arange(len(last)), last, 1)[0] * len(last)
    yield {
        "name": name,
        "value": 100 * slope / last.mean(),
        "unit": "% growth",
        "against": f"{last.mean():,.0f} MiB resident",
        "target": 1.0,
    }


def gather(name: str) -> Iterator[dict]:
    """Time the call that gives the sampler its weights, at 135M parameters."""
    import jax

    from spade_jax.policy import sharding, transformer

    mesh = sharding.make_mesh(devices=jax.devices()[:1])
    params = jax.jit(functools.partial(transformer.init, smol()))(jax.random.key(0))
    params = jax.device_put(params, sharding.param_shardings(smol(), mesh))
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        jax.block_until_ready(sharding.gather(params, smol(), mesh))
        times.append(time.perf_counter() - begun)
    yield {"name": name, "value": statistics.median(times), "unit": "s", "against": "one device"}


def speed(name: str) -> Iterator[dict]:
    """Take whole steps in turn with torch, and measure the matrix limit between them."""
    steps = {dtype: smol_step(dtype) for dtype in ("float32", "bfloat16")}
    if not PEER.exists():
        yield {"name": name, "value": "none", "unit": "", "against": f"{PEER} is missing"}
    seconds: dict[str, list[float]] = {}
    limits: dict[str, list[float]] = {}
    peers = {d: Peer(d) for d in ("float32", "bfloat16")} if PEER.exists() else {}
    try:
        for turn in range(ROUNDS + 1):
            for dtype, step in steps.items():
                _timed(seconds, f"ours {dtype}", step, turn)
                limits.setdefault(dtype, []).append(matrix_limit(dtype))
            for dtype, peer in peers.items():
                _timed(seconds, f"torch {dtype}", peer.step, turn)
    finally:
        for peer in peers.values():
            peer.close()
    rates = {side: ROWS * TOKENS / statistics.median(t) for side, t in seconds.items()}
    best = max((rate for side, rate in rates.items() if side.startswith("torch")), default=None)
    for side, rate in rates.items():
        line = {"name": f"{name}, {side}", "value": rate, "unit": "tokens/s"}
        if side.startswith("ours"):
            dtype = side.split()[1]
            limit = statistics.median(limits[dtype])
            line["share_of_matrix_limit"] = round(rate * flops_per_token() / 1e9 / limit, 2)
            line["limit"] = f"{limit:.0f} GFLOP/s"
            if best is not None:
                line |= {"ratio": round(rate / best, 2), "target": 1.5}
        yield line


def _timed(seconds: dict, side: str, step, turn: int) -> None:
    begun = time.perf_counter()
    step()
    if turn:  # the first compiles and fills caches
        seconds.setdefault(side, []).append(time.perf_counter() - begun)


def flops_per_token() -> float:
    """Products of forward and backward pass: 6 per parameter, and attention over half a row."""
    model = smol()
    matrices = model.layers * (
        model.width * model.head_dim * (2 * model.heads + 2 * model.kv_heads)
        + 3 * model.width * model.mlp_width
    )
    attention = model.layers * model.heads * model.head_dim * TOKENS * 2
    return 6.0 * (matrices + model.vocab_size * model.width) + 3.0 * attention


def matrix_limit(dtype: str) -> float:
    """Measure GFLOP/s of one square product."""
    import jax
    import jax.numpy as jnp

    size = 2048
    a = jnp.ones((size, size), dtype)
    product = jax.jit(lambda x: x @ x)
    jax.block_until_ready(product(a))
    begun = time.perf_counter()
    jax.block_until_ready([product(a) for _ in range(4)])
    return 4 * 2 * size**3 / (time.perf_counter() - begun) / 1e9


def smol(compute: str = "float32"):
    """Give the sizes of SmolLM2-135M."""
    from spade_jax.policy import transformer

    return transformer.ModelConfig(
        vocab_size=VOCABULARY, layers=30, width=576, heads=9, kv_heads=3, head_dim=64,
        mlp_width=1536, rope_theta=100000.0, norm_eps=1e-5, compute_dtype=compute,
    )  # fmt: skip


def smol_step(dtype: str):
    """Bind one step over 8,192 tokens, a row to a microbatch."""
    import jax

    given = setting(smol(dtype), plays=ROWS, tokens=TOKENS, microbatches=ROWS)
    kept = {"state": given.state}

    def step():
        kept["state"], report = given.step(kept["state"])
        jax.block_until_ready((kept["state"].params, report["loss"]))

    return step


def tiny():
    """Give a step of a tiny model."""
    from spade_jax.policy import transformer

    model = transformer.ModelConfig(
        vocab_size=64, layers=1, width=16, heads=2, kv_heads=1, head_dim=8, mlp_width=32
    )
    return setting(model, plays=8, tokens=16, microbatches=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """A state and the step that moves it."""

    state: object
    step: object


def setting(model, plays: int, tokens: int, microbatches: int) -> Setting:
    """Make up one group of plays, each a full row: half prompt, half reply."""
    import jax
    import numpy as np

    from spade_jax import batch, curriculum, learn, records
    from spade_jax.policy import sharding, transformer

    rng = np.random.default_rng(0)
    mesh = sharding.make_mesh(devices=jax.devices()[:1])

    def ids():
        return tuple(int(i) for i in rng.integers(0, model.vocab_size, tokens // 2))

    def play(g: int):
        answer = records.Reply(ids=ids(), logps=(-10.0,) * (tokens // 2), stopped=True)
        turn = records.Turn(observed_ids=ids(), reply=answer, action="", reward=0.0)
        return records.Episode(
            environment=0, seed_index=0, play=g, arm=records.PLAIN, seed=0, turns=(turn,),
            value=float(g % 2), fault="", detail="", truncated=False, observation="",
        )  # fmt: skip

    made = batch.build(
        [play(g) for g in range(plays)], [], slots=(0,), fresh={}, pool_slots=2,
        shape=batch.TableShape(environments=1, seeds=1, plays=plays, drafts=1),
        config=batch.BatchConfig(row_tokens=tokens, rows_multiple=microbatches), mesh=mesh,
    ).batch  # fmt: skip
    config = learn.LearnConfig(microbatches=microbatches, chunk_tokens=512)
    world = curriculum.CurriculumConfig()
    params = jax.jit(functools.partial(transformer.init, model))(jax.random.key(0))
    state = learn.init(params, model, config, world, 2, mesh)
    return Setting(
        state=state, step=lambda now: learn.update(now, made, model, config, world, mesh)
    )


class Peer:
    """A torch process that takes a step when asked."""

    def __init__(self, dtype: str):
        script = ROOT / "experiments" / "torch_update.py"
        self._process = subprocess.Popen(
            [PEER, script, dtype, str(ROWS), str(TOKENS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def step(self) -> None:
        """Let the other process take one update, and wait for it."""
        self._process.stdin.write("step\n")
        self._process.stdin.flush()
        if not self._process.stdout.readline():
            raise RuntimeError(f"{PEER} ended: run {self._process.args} by hand to see why.")

    def close(self) -> None:
        """End the other process."""
        self._process.kill()
        self._process.wait()
