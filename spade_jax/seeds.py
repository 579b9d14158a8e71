"""Random streams as functions of (seed, iteration, room, host): a resume stores no keys."""

from __future__ import annotations

import numpy as np

ROOMS = {
    "tokenizer": 1,
    "weights": 2,
    "warmstart": 3,
    "design": 4,
    "hint": 5,
    "pool": 6,
    "rollout": 7,
    "learn": 8,
    "evaluate": 9,
    "corpus": 10,
    "screen": 11,
    "shuffle": 12,
    "review": 13,
}


def stream(seed: int, room: str, iteration: int = 0, host: int = 0) -> np.random.Generator:
    """Open the random stream of one room at one iteration on one host.

    Raises:
      KeyError: `room` is not in ROOMS.
    """
    return np.random.default_rng([seed, ROOMS[room], iteration, host])


def sampling_seeds(rng: np.random.Generator, shape: int | tuple[int, ...]) -> np.ndarray:
    """Draw one uint32 sampler seed per sequence."""
    return rng.integers(0, 2**32, size=shape, dtype=np.uint32)


def episode_seeds(rng: np.random.Generator, shape: int | tuple[int, ...]) -> np.ndarray:
    """Draw environment seeds of training plays, in [0, 2^30); evaluation uses [2^30, 2^31)."""
    return rng.integers(0, 2**30, size=shape, dtype=np.int64)


def evaluation_seeds(rng: np.random.Generator, shape: int | tuple[int, ...]) -> np.ndarray:
    """Draw environment seeds that training never uses, in [2^30, 2^31)."""
    return rng.integers(2**30, 2**31, size=shape, dtype=np.int64)
