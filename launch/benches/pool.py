"""Costs of the pool at a given size: what one iteration asks of it, and its memory.

A pool of 100,000 slots and a memory of 100,000 are filled with programs of 6 kB of which one in ten
is a near copy, then generations of 24 come and go.
"""

from __future__ import annotations

import json
import pathlib
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

import jax.numpy as jnp
import numpy as np

from spade_jax import archive, checkpoint, fingerprints, memory, neighbours, pool, records

SIZE = 100_000
GENERATION = 24
TARGET_MS = 50.0
PROGRAM_BYTES = 6000
REPEATS = 7
ADDED = "checkpoint on disk, the pool's share"


def measure(only: str) -> Iterator[dict]:
    """Time admitting, searching, drawing, settling, prompting and checkpointing."""
    rng = np.random.default_rng(0)
    config = pool.PoolConfig(slots=SIZE, memory=SIZE)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "programs.jsonl"
        made = pool.empty(config, archive.Archive(path))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for first in range(0, 2 * SIZE, 1000):
            _grow(made, first, 1000, config, rng)
        steps = _steps(made, config, rng, folder)
        for name in [name for name in steps if only in name]:
            seconds = [_seconds(*steps[name]) for _ in range(REPEATS)]
            yield {
                "name": name,
                "value": 1000 * statistics.median(seconds),
                "unit": "ms",
                "worst": round(1000 * max(seconds), 1),
                "target": f"<= {TARGET_MS:g}",
            }
        if only in ADDED:
            yield _added(made, folder)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        yield {
            "name": "memory, peak of the process",
            "value": peak / 1024,
            "unit": "MiB",
            "empty": round(before / 1024),
            "target": "< 1024",
        }
        yield {"name": "file of programs", "value": path.stat().st_size / 2**20, "unit": "MiB"}


def _seconds(prepare, step) -> float:
    prepared = prepare()
    begun = time.perf_counter()
    step(prepared)
    return time.perf_counter() - begun


def _added(made: pool.Pool, folder: str) -> dict:
    """Checkpoints on disk, of the pool and of nothing, by turns: what is left is the pool's."""
    store = checkpoint.Store(f"{folder}/blocking", checkpoint.CheckpointConfig(keep=2))
    counter = iter(range(10**9))

    def nothing():
        return None

    def save(host: Callable[[], dict]):
        made.archive.sync()
        store.save(next(counter), {"step": jnp.zeros(1)}, host())

    pairs = [
        (
            _seconds(nothing, lambda _: save(lambda: {"pool": pool.to_json(made)})),
            _seconds(nothing, lambda _: save(dict)),
        )
        for _ in range(3 * REPEATS)
    ]
    whole, empty = (1000 * statistics.median(column) for column in zip(*pairs, strict=True))
    return {
        "name": ADDED,
        "value": whole - empty,
        "unit": "ms",
        "whole": round(whole, 1),
        "without_pool": round(empty, 1),
        "target": f"<= {TARGET_MS:g}",
    }


def _steps(made: pool.Pool, config: pool.PoolConfig, rng, folder: str) -> dict:
    """Name -> what prepares a step untimed, and the step."""
    store = checkpoint.Store(folder, checkpoint.CheckpointConfig(keep=2, saves="async"))
    counter = iter(range(10**9))

    def draft_round(_):
        view = pool.memory_view(made)
        found = {skill: memory.candidates(view, skill, 2) for skill in records.SKILLS}
        for i in range(GENERATION):
            memory.examples(found[records.SKILLS[i % 6]], 2, 1, rng, made.archive.read)

    def nearest(asked):
        for signature_K in asked:
            neighbours.nearest(made.known, signature_K)

    def fresh():
        return _environments(10**6 + GENERATION * next(counter), GENERATION, rng)

    def signatures():
        return [fingerprints.from_text(e.signature) for e in fresh()]

    def numbers():
        return [rng.random(SIZE, np.float32) for _ in range(3)] + [rng.random(SIZE) < 0.01]

    def nothing():
        return None

    def save(_):
        made.archive.sync()
        store.save(next(counter), {"step": jnp.zeros(1)}, {"pool": pool.to_json(made)})

    return {
        "admit a generation of 24": (fresh, lambda new: pool.admit(made, new, config)),
        "near-duplicate search of 24": (signatures, nearest),
        "draw 24": (nothing, lambda _: pool.draw(made, 24, config, rng)),
        "settle": (numbers, lambda given: pool.settle(made, *given)),
        "memory examples of 24 prompts": (nothing, draft_round),
        "write the pool as JSON values": (nothing, lambda _: json.dumps(pool.to_json(made))),
        "checkpoint the pool, what a run waits": (store.wait, save),  # checkpoint.saves="async"
    }


def _grow(made: pool.Pool, first: int, count: int, config: pool.PoolConfig, rng) -> None:
    slots = pool.admit(made, _environments(first, count, rng), config)
    made.win_rate_P[slots] = rng.random(count, np.float32)
    made.regret_P[slots] = rng.random(count, np.float32)


def _environments(first: int, count: int, rng) -> list[records.Environment]:
    """Make records with random signatures; every tenth copies nine tenths of the one before."""
    made = []
    for uid in range(first, first + count):
        signature_K = rng.integers(0, 2**32, fingerprints.PERMUTATIONS, dtype=np.uint32)
        if uid % 10 == 0 and made:
            kept = rng.random(fingerprints.PERMUTATIONS) < 0.9
            signature_K[kept] = fingerprints.from_text(made[-1].signature)[kept]
        made.append(
            records.Environment(
                uid=uid,
                source=f"# {uid}\n".ljust(PROGRAM_BYTES, "x"),
                setting="games",
                skill=records.SKILLS[uid % 6],
                difficulty="medium",
                generation=uid // GENERATION,
                class_name="RiverEnv",
                digest=f"{uid:032x}",
                signature=fingerprints.to_text(signature_K),
                max_turns=12,
            )
        )
    return made
