"""The hint is asked apart from play; one that may not be shown leaves the hinted arm out."""

import dataclasses
import functools

import fakes
import pytest

from sandbox import crew
from spade_jax import domains, machine
from spade_jax import hint as hint_lib

CONFIG, play, groups, arm = fakes.PLAY, fakes.play, fakes.groups, fakes.arm


def test_hint_and_solution_are_asked_of_a_play_that_nobody_plays():
    _, sandbox, _ = play(lambda prompt, seed: "3")
    asked = {r["play"] for r in sandbox.sessions[0].requests() if r["op"] in ("hint", "solution")}
    played = {r["play"] for r in sandbox.sessions[0].batches[-1] if r["op"] == "step"}
    assert asked == {5} and played == {0, 1, 2, 3, 4}


def test_a_refused_hint_leaves_out_the_hinted_arm_of_its_group_and_is_counted_once():
    def tell(request):
        return {"present": True, "hint": "It is 3."}

    sandbox = fakes.Sandbox(overrides={"hint": tell})
    asked = [groups(seed=13)[0], dataclasses.replace(groups(seed=14)[0], row=1)]
    played, _, _ = play(lambda p, s: "3", sandbox, asked)
    assert played.hint_refusals == {"leaks_answer": 1}
    assert played.dropped == 2 and len(played.episodes) == 8
    assert played.leaks_N == {0: 1.0, 1: 0.0}
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


def told(hint, **overrides):
    return fakes.Sandbox(
        overrides={"hint": lambda r: {"present": True, "hint": hint}}
        | {op: lambda r, a=answer: a for op, answer in overrides.items()}
    )


def test_a_hint_whose_words_win_at_once_is_refused_whatever_solution_says():
    lying = told("It is 3, surely.", solution={"present": True, "solution": "x"})
    played, sandbox, _ = play(lambda p, s: "0", lying)
    assert played.hint_refusals == {"leaks_answer": 1} and arm(played, 1) == []
    assert "\\boxed{3}" in sandbox.tries()
    assert [(e.fault, e.value) for e in arm(played, 0)] == [("", 0.0)] * 3


def test_tries_cost_one_message_and_only_where_there_is_a_hinted_arm():
    def batches(plays):
        config = dataclasses.replace(CONFIG, hinted_plays=plays[1])
        _, sandbox, _ = play(lambda p, s: "3", asked=groups(plays=plays), config=config)
        return len(sandbox.sessions[0].batches), sandbox.tries()

    assert batches((3, 0)) == (2, [])
    count, tries = batches((3, 2))
    assert count == 3
    assert tries == [f"\\boxed{{{words}}}" for words in ("It is odd", "odd", "is", "It")]


def test_tries_are_fresh_plays_and_change_no_play():
    _, sandbox, _ = play(lambda p, s: "3")
    ops = [r["op"] for r in sandbox.sessions[0].batches[1]]
    assert ops == ["load", "reset", "step", "drop"] * 4
    assert {r["play"] for r in sandbox.sessions[0].batches[1]} == {5}


def test_a_process_lost_while_hints_are_tried_repeats_its_plays():
    calm, _, _ = play(lambda p, s: "3")
    unlucky = fakes.Sandbox(lose=lambda s, b: 3 if (s, b) == (0, 1) else None)
    played, sandbox, _ = play(lambda p, s: "3", unlucky)
    assert played == calm and len(sandbox.sessions) == 2


@pytest.mark.parametrize(("word", "fault"), [("raise", ""), ("hog", "environment")])
def test_a_try_that_raises_is_no_win_and_one_that_ends_the_process_a_fault(word, fault):
    played, _, _ = play(lambda p, s: "3", told(f"never {word}"))
    assert [e.fault for e in arm(played, 1)] == [fault] * 2
    assert played.hint_refusals == {}
    assert played.leaks_N == ({} if fault else {0: 0.0})


def test_a_program_hint_without_a_solution_is_not_shown():
    for answer in ({"present": False, "solution": None}, {"present": True, "solution": None}):
        played, _, _ = play(lambda p, s: "3", told("It is odd.", solution=answer))
        assert played.hint_refusals == {"unchecked": 1} and played.leaks_N == {0: 0.0}


def test_a_hint_of_the_policy_is_tried_where_there_is_no_solution():
    show = functools.partial(machine.show_hint, config=hint_lib.HintConfig(source="policy"))
    none = {"present": False, "solution": None}
    for text, refusals in (("Say 3.", {"leaks_answer": 1}), ("Count up.", {})):
        sandbox = fakes.Sandbox(overrides={"solution": lambda r: none})
        played, _, _ = play(lambda p, s: "3", sandbox, groups(hint=text), show_hint=show)
        assert played.hint_refusals == refusals


def test_no_value_of_a_tool_call_stands_in_a_hint():
    call = '<tool_call>{"name": "pay", "arguments": {"to": ["A-17"], "sum": 40, "now": true}}'
    config = hint_lib.HintConfig()
    tools = fakes.environment(setting="tool_use")
    for text, reason in (
        ("First pay 40.", "leaks_answer"),
        ("The account is a 17.", "leaks_answer"),
        ("It is true that you pay first.", ""),
    ):
        verdict = machine.show_hint(tools, text, f"{call}</tool_call>", config)
        assert verdict.reason == reason


BLOB = """
class BlobEnv(QAEnv):
    max_turns = 1

    def task(self, rng):
        n = rng.randint(100, 999)
        return f"say {n} backwards", str(n)[::-1], f"try {str(n)[::-1]}x"

    def step(self, action):
        return super().step(action.replace("x}", "}"))

    def solution(self):
        return self._answer + "x0"
"""


def test_words_of_a_hint_that_win_in_a_real_process_refuse_it():
    setting = domains.get("compact")
    with crew.Crew(crew.CrewConfig(tier="subprocess", boxes=1)) as boxes:

        def start(environment, seed):
            modules, prelude = dict(setting.modules), setting.prelude
            return boxes.open(environment.source, modules=modules, prelude=prelude, seed=seed)

        asked = groups(2, source=BLOB)
        played, _, _ = play(lambda p, s: "0", asked=asked, open=start, action_of=setting.wrap)
    assert played.hint_refusals == {"leaks_answer": 2} and played.leaks_N == {0: 1.0, 1: 1.0}
    assert [(e.arm, e.fault) for e in played.episodes] == [(0, "")] * 6
