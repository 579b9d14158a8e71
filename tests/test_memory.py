"""Candidates of a prompt: the best of a large memory, found without sorting all of it."""

import numpy as np
import pytest

from spade_jax import memory


def entries(count, rng):
    return memory.of(
        np.arange(count),
        [memory.skill_code(f"skill {i % 3}") for i in range(count)],
        rng.random(count),
        rng.integers(0, 50, count) / 50,  # many ties
    )


@pytest.mark.parametrize("count", [0, 5, 40, 3000])
def test_candidates_equal_a_full_stable_sort(count):
    rng = np.random.default_rng(count)
    found = entries(count, rng)
    band, outside = memory.candidates(found, "skill 1", 2)
    own = [i for i in range(count) if i % 3 == 1]
    inside = [i for i in own if 0.15 <= found.win_rate_H[i] <= 0.85]
    best = sorted(inside, key=lambda i: -found.regret_H[i])[:10]
    assert band.number_H.tolist() == best
    beyond = [i for i in own if found.win_rate_H[i] < 0.1 or found.win_rate_H[i] > 0.9]
    assert outside.number_H.tolist() == beyond


def test_a_skill_has_one_code_in_every_process():
    assert memory.skill_code("Logical Deduction") == 1379288179
