"""Streams are functions of their names, and evaluation plays instances that training never does."""

import itertools

import numpy as np
import pytest

from spade_jax import seeds


def test_a_stream_opens_the_same_twice():
    draws = [seeds.stream(3, "rollout", 5, 1).integers(2**62, size=4).tolist() for _ in range(2)]
    assert draws[0] == draws[1]


def test_streams_differ_by_seed_room_iteration_and_host():
    names = itertools.product((0, 1), seeds.ROOMS, (0, 1), (0, 1))
    first = [int(seeds.stream(*name).integers(2**62)) for name in names]
    assert len(set(first)) == len(first) == 8 * len(seeds.ROOMS)


def test_rooms_have_numbers_of_their_own():
    assert len(set(seeds.ROOMS.values())) == len(seeds.ROOMS)
    with pytest.raises(KeyError):
        seeds.stream(0, "cellar")


def test_training_and_evaluation_share_no_instance():
    rng = np.random.default_rng(0)
    trained, asked = seeds.episode_seeds(rng, 10_000), seeds.evaluation_seeds(rng, 10_000)
    assert 0 <= trained.min() and trained.max() < 2**30 <= asked.min() and asked.max() < 2**31


def test_sampler_seeds_are_uint32_in_the_asked_shape():
    drawn = seeds.sampling_seeds(np.random.default_rng(0), (3, 2))
    assert drawn.shape == (3, 2) and drawn.dtype == np.uint32
    assert seeds.sampling_seeds(np.random.default_rng(0), 1000).max() > 2**31
