"""Levels follow the agent: the range opens where it wins, and never falls back."""

import numpy as np
import pytest

from spade_jax import library, programs, settings, window

CONFIG = window.WindowConfig(accuracy=0.75, plays=4, width=3, highest=20)


def test_the_top_opens_after_enough_wins_there_and_the_counters_start_anew():
    now = window.played(window.Window(), 0, 2, 2, CONFIG)
    assert now == window.Window(low=0, high=0, plays=2, wins=2)
    assert window.played(now, 0, 2, 1, CONFIG) == window.Window(low=0, high=1)  # 3 of 4
    assert window.played(now, 0, 2, 0, CONFIG) == window.Window(low=0, high=0)  # 2 of 4


def test_plays_below_the_top_do_not_count_and_the_width_is_kept():
    at_three = window.Window(low=1, high=3)
    assert window.played(at_three, 2, 8, 8, CONFIG) == at_three
    assert window.played(at_three, 3, 4, 4, CONFIG) == window.Window(low=2, high=4)
    highest = window.Window(low=18, high=20)
    assert window.played(highest, 20, 4, 4, CONFIG) == highest


def test_levels_turn_the_knobs_from_easy_to_hard():
    seeds = library.load("experiments/seed_environments", ("compact",), ("train",))
    seed = next(s for s in seeds if s.knobs)
    plain = library.environment(seed, uid=-1, max_turns=1)
    easy, hard = (window.at_level(seed, plain, level, 20) for level in (0, 20))
    for literal, (low, _, high) in seed.knobs.items():
        if low != literal and high != literal:
            assert str(low) in easy.source and str(high) in hard.source
    assert (easy.difficulty, hard.difficulty) == ("easy", "hard")
    assert easy.digest != hard.digest and not isinstance(
        programs.parse(hard.source), programs.Finding
    )


def test_draws_cover_the_range():
    rng = np.random.default_rng(0)
    assert {window.draw(window.Window(low=2, high=4), rng) for _ in range(50)} == {2, 3, 4}


def test_windows_need_a_fixed_pool():
    with pytest.raises(ValueError, match="window.on with mode='self_play'"):
        settings.RunConfig(window=window.WindowConfig(on=True))
