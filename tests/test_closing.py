"""The closing table shows what was measured, with intervals, and leaves out what was not."""

import pathlib

from spade_jax import closing, settings

FOLDER = pathlib.Path("runs/x")


def score(answers, low, high):
    return {
        "solved": answers.count("1"), "questions": len(answers) - answers.count("x"),
        "low": low, "high": high, "answers": answers,
    }  # fmt: skip


def values(**changes):
    fields = {
        "mode": "self_play", "seed": 3, "iterations": 8, "tier": "gvisor", "supervised_steps": 0,
        "totals": {"programs": 40, "episodes": 200, "drafts": 10, "accepted": 7,
                   "refused_syntax": 1, "refused_unwinnable": 2},
        "evaluations": [
            {"iteration": 0, "suites": {"known": score("0010", 0.1, 0.5)}},
            {"iteration": 8, "suites": {"known": score("0111", 0.5, 0.9)}},
        ],
        "learnable": [0.1, 0.3, None, 0.2, 0.4, 0.4, 0.5, 0.6, 0.8],
        "validity": [None],
        "regret": [[0.1, 0.3], [None, None], [0.3, 0.4]],
    }  # fmt: skip
    return fields | changes


def test_the_table_tells_counts_and_refusals_commonest_first():
    text = closing.table(values(), FOLDER)
    assert "8 (self_play, seed 3)" in text
    assert "40 in gvisor" in text
    assert "10 written, 7 accepted; refused: unwinnable 2, syntax 1" in text


def test_drafts_that_nobody_judged_are_not_refused():
    totals = values()["totals"] | {"unchecked": 3.0}
    text = closing.table(values(totals=totals), FOLDER)
    assert "7 accepted, 3 not judged (the sandbox failed); refused: unwinnable 2" in text


def test_groups_that_lost_their_hinted_plays_are_told_by_reason():
    totals = values()["totals"] | {"hint_refused_none": 2, "hint_refused_leaks_answer": 9}
    assert "groups without hinted plays" not in closing.table(values(), FOLDER)
    text = closing.table(values(totals=totals), FOLDER)
    (line,) = [line for line in text.splitlines() if "groups without hinted plays" in line]
    assert line.endswith("leaks_answer 9, none 2") and "refused: unwinnable" in text


# Eight values are known; the quarters are .1 .3 and .6 .8.
def test_shares_are_told_as_first_and_last_quarter():
    lines = [line.split() for line in closing.table(values(), FOLDER).splitlines()]
    (learnable,) = [line for line in lines if line[:2] == ["learnable", "share,"]]
    assert learnable[-3:] == ["0.20", "->", "0.70"]
    (validity,) = [line for line in lines if line[:1] == ["validity,"]]
    assert validity[-1] == "none"


# Mean (.1 + .3) / 2; error sqrt(.09 + .16) / 2 = .25, half width 1.96 * .25 = .49.
def test_regret_has_an_interval():
    text = closing.table(values(), FOLDER)
    assert "+0.200 ± 0.490" in text
    assert "regret" not in closing.table(values(regret=[[None, None]]), FOLDER)


# 1 of 4 and 3 of 4 solved; gaps 0 1 0 1: mean 1/2, sample deviation .57735, error .288675.
def test_evaluations_are_compared_in_pairs():
    text = closing.table(values(), FOLDER)
    assert "known families, before" in text and "25.0% ± 20.0 (4 questions)" in text
    assert "known families, after 8 iterations" in text and "75.0% ± 20.0 (4 questions)" in text
    assert "+50.0 ± 56.6 points" in text
    assert "held-out" not in text


def test_one_evaluation_is_only_a_before():
    text = closing.table(values(evaluations=values()["evaluations"][:1]), FOLDER)
    assert "before" in text and "after" not in text and "change" not in text


def test_an_evaluation_that_followed_a_supervised_start_says_so():
    text = closing.table(values(supervised_steps=1600), FOLDER)
    assert "known families, after 1600 supervised steps" in text and "before" not in text
    assert "known families, after 8 iterations" in text
    assert closing._supervised_steps(settings.RunConfig(mode="supervised")) == 1000
    given = settings.RunConfig(policy=settings.PolicyConfig(weights="x.npz"))
    assert closing._supervised_steps(given) == 0
    assert closing._supervised_steps(settings.RunConfig()) == 1000  # from nothing


def test_a_run_without_designer_tells_of_no_drafts():
    totals = {"programs": 4.0, "episodes": 20.0, "drafts": 0}
    text = closing.table(values(totals=totals, mode="fixed_pool"), FOLDER)
    assert "drafts" not in text and "validity" not in text


def test_a_supervised_run_tells_of_no_iterations_it_did_not_make():
    text = closing.table(values(iterations=0, mode="supervised", totals={}), FOLDER)
    assert "0 (supervised, seed 3)" in text
    assert not any(name in text for name in ("programs executed", "episodes", "learnable"))
