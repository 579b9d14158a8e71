"""The hint is asked apart from play; one that may not be shown leaves the hinted arm out."""

import dataclasses

import fakes
import pytest

CONFIG, play, groups, arm = fakes.PLAY, fakes.play, fakes.groups, fakes.arm


def test_hint_and_solution_are_asked_of_a_play_that_nobody_plays():
    _, sandbox, _ = play(lambda prompt, seed: "3")
    asked = {r["play"] for r in sandbox.sessions[0].requests() if r["op"] in ("hint", "solution")}
    stepped = {r["play"] for r in sandbox.sessions[0].requests() if r["op"] == "step"}
    assert len(asked) == 1 and not asked & stepped


def test_a_refused_hint_leaves_out_the_hinted_arm_of_its_group_and_is_counted_once():
    def tell(request):
        return {"present": True, "hint": "It is 3."}

    sandbox = fakes.Sandbox(overrides={"hint": tell})
    asked = [groups(seed=13)[0], dataclasses.replace(groups(seed=14)[0], row=1)]
    played, _, _ = play(lambda p, s: "3", sandbox, asked)
    assert played.hint_refusals == {"leaks_answer": 1}
    assert played.dropped == 2 and len(played.episodes) == 8
    assert [(e.environment, e.arm) for e in arm(played, 1)] == [(1, 1), (1, 1)]
    assert len(arm(played, 0)) == 6
    assert len(played.transcripts) == len(played.episodes)


@pytest.mark.parametrize(
    ("op", "answer", "reason"),
    [
        ("hint", {"present": False, "hint": None}, "none"),
        ("hint", {"present": True, "hint": ["It is odd."]}, "none"),
        ("hint", {}, "none"),
        ("hint", {"present": True, "hint": "word " * 101}, "too_long"),
    ],
)
def test_a_hint_that_is_none_names_its_reason(op, answer, reason):
    played, _, _ = play(lambda p, s: "3", fakes.Sandbox(overrides={op: lambda r: answer}))
    assert played.hint_refusals == {reason: 1} and arm(played, 1) == []


@pytest.mark.parametrize(("op", "reason"), [("hint", "none"), ("solution", "unchecked")])
def test_an_exception_in_hint_or_solution_leaves_the_hint_out(op, reason):
    def fail(request):
        raise ArithmeticError(op)

    played, _, _ = play(lambda p, s: "3", fakes.Sandbox(overrides={op: fail}))
    assert played.hint_refusals == {reason: 1}
    assert [(e.arm, e.fault, e.value) for e in played.episodes] == [(0, "", 1.0)] * 3


def test_a_hint_that_ends_its_process_is_a_fault_of_the_environment():
    def fail(request):
        raise fakes.Ended("timeout")

    played, _, _ = play(lambda p, s: "3", fakes.Sandbox(overrides={"hint": fail}))
    assert [e.fault for e in played.episodes] == ["environment"] * 5
    assert played.hint_refusals == {} and played.dropped == 0


def test_hints_are_found_though_a_group_is_cut_by_waves():
    config = dataclasses.replace(CONFIG, processes=1, isolation="episode")
    told = fakes.Sandbox(overrides={"hint": lambda r: {"present": True, "hint": "3"}})
    played, _, _ = play(lambda p, s: "3", told, config=config)
    assert played.hint_refusals == {"leaks_answer": 1} and played.dropped == 2
    played, _, _ = play(lambda p, s: "3", config=config)
    assert [e.observation.endswith("It is odd.") for e in arm(played, 1)] == [True, True]
