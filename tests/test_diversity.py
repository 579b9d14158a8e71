"""Vendi scores: one for copies, all for strangers."""

import ast

import numpy as np
import pytest

from spade_jax import diversity, figures, records

import fakes  # isort: skip


# n copies: one eigenvalue 1, exp(0) / n. n strangers: n eigenvalues 1/n, exp(log n) / n = 1.
def test_copies_count_as_one_and_strangers_all():
    assert diversity.vendi(np.ones((4, 4))) == pytest.approx(1 / 4)
    assert diversity.vendi(np.eye(4)) == pytest.approx(1.0)
    assert diversity.vendi(np.zeros((0, 0))) == 0.0


# Two pairs of copies: two eigenvalues 1/2, exp(log 2) / 4 = 1/2.
def test_two_kinds_among_four_are_half():
    pairs = np.kron(np.eye(2), np.ones((2, 2)))
    assert diversity.vendi(pairs) == pytest.approx(0.5)


def test_programs_in_other_words_are_one_by_structure_and_two_by_words():
    first = "class AEnv:\n    def step(self, action):\n        return action + 1"
    second = first.replace("AEnv", "RiverEnv").replace("action", "move")
    trees = [ast.parse(text) for text in (first, second)]
    assert diversity.of_structure(trees) == pytest.approx(0.5)
    assert diversity.of_words([first, second]) > 0.6
    assert diversity.of_words([first, first]) == pytest.approx(0.5)


def play(action, seed, value, environment=0):
    turn = records.Turn(observed_ids=(1,), reply=fakes.reply(action), action=action, reward=value)
    return records.Episode(
        environment=environment, seed_index=seed, play=0, arm=records.PLAIN, seed=seed,
        turns=(turn,), value=value, fault="", detail="", truncated=False, observation="",
    )  # fmt: skip


def test_a_win_is_blind_when_its_action_wins_on_every_seed():
    same = [play("x", 0, 1.0), play("x", 1, 1.0), play("y", 1, 0.0)]
    honest = [play("3", 0, 1.0, 1), play("4", 1, 1.0, 1), play("3", 1, 0.0, 1)]
    one_seed = [play("x", 0, 1.0, 2)]
    assert figures.blind_wins(same + honest + one_seed) == {0: (2, 2), 1: (0, 2)}
