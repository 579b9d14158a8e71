"""Scores count faults apart, and two evaluations are compared question by question."""

import json
import math

import pytest

from spade_jax import evaluate, metrics, records, seed_files


def program(family, skill):
    return seed_files.SeedFile(
        path=f"{family}.py", summary="", family=family, skill=skill, setting="compact",
        kind="single_turn", split="train", knobs={}, code="",
    )  # fmt: skip


PROGRAMS = [program("sum", records.SKILLS[0]), program("times", records.SKILLS[0]),
            program("order", records.SKILLS[1])]  # fmt: skip


def episode(environment, seed_index, value, fault=""):
    return records.Episode(
        environment=environment, seed_index=seed_index, play=0, arm=0, seed=2**30, turns=(),
        value=value, fault=fault, detail="it broke" if fault else "", truncated=False,
        observation="",
    )  # fmt: skip


def tally():
    episodes = [
        episode(0, 0, 1.0), episode(0, 1, 0.5), episode(1, 1, 1.0), episode(1, 0, 0.0),
        episode(2, 0, 0.0, "environment"), episode(2, 1, 1.0),
    ]  # fmt: skip
    return evaluate._tally("known", PROGRAMS, list(reversed(episodes)), 2.0)


def test_answers_stand_in_the_order_of_the_questions_whatever_the_order_of_play():
    assert tally().answers == "1001x1"


def test_a_fault_is_no_question_and_half_a_reward_no_solution():
    score = tally()
    assert (score.solved, score.questions, score.faults) == (3, 5, 1)
    assert score.rate == 0.6 and score.low < 0.6 < score.high
    assert score.by_skill == {records.SKILLS[0]: (2, 4), records.SKILLS[1]: (1, 1)}
    assert score.by_family == {"order": (1, 1), "sum": (1, 2), "times": (1, 2)}


def test_a_suite_of_faults_has_no_rate_to_speak_of():
    score = evaluate._tally("known", PROGRAMS, [episode(0, 0, 0.0, "infra")], 1.0)
    assert (score.rate, score.questions, score.answers) == (0.0, 0, "x")


def test_scores_are_json_and_metrics():
    written = evaluate.to_json({"known": tally()}, 3)
    assert json.loads(json.dumps(written))["suites"]["known"]["answers"] == "1001x1"
    named = evaluate.as_metrics({"known": tally()})
    assert named["eval/known"] == 0.6
    assert named["eval/known_half_width"] == pytest.approx((tally().high - tally().low) / 2)
    assert not [name for name in named if "skill" in name]


def test_skills_of_held_out_families_are_metrics():
    named = evaluate.as_metrics({"held_out": tally()})
    rates = {name: rate for name, rate in named.items() if "skill" in name}
    assert rates == {
        f"eval/skill_{metrics.slug(records.SKILLS[0])}/solve_rate": 0.5,
        f"eval/skill_{metrics.slug(records.SKILLS[1])}/solve_rate": 1.0,
    }
    assert metrics.check(named)


# Differences +1 0 0 +1 (the questions with an x are left out): mean 1/2, sample deviation
# sqrt(4 * 0.25 / 3) = 0.57735, standard error 0.288675.
def test_a_change_is_measured_over_questions_scored_both_times():
    gap, half = evaluate.paired("01x000", "11101x")
    assert gap == 0.5 and half == pytest.approx(1.959964 * 0.288675, rel=1e-5)


def test_a_change_of_nothing_is_exact_and_of_one_question_unknown():
    assert evaluate.paired("0101", "0101") == (0.0, 0.0)
    assert evaluate.paired("0", "1") == (1.0, math.inf)
    assert evaluate.paired("x", "1") == (0.0, math.inf)


def test_evaluations_of_other_questions_cannot_be_compared():
    with pytest.raises(ValueError):
        evaluate.paired("010", "01")
