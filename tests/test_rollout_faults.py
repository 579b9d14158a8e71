"""A fault costs the plays that it ended and nothing else; a lost process is replayed once."""

import dataclasses

import fakes
import pytest

CONFIG, play, groups = fakes.PLAY, fakes.play, fakes.groups


def test_an_exception_excludes_only_its_own_play():
    played, _, _ = play(fakes.by_seed(["raise", "3"]))
    faults = [episode.fault for episode in played.episodes]
    assert faults == ["environment", "", "environment", "", "environment"]
    assert played.episodes[0].detail == "error: ArithmeticError: in step"
    assert played.episodes[0].value == 0.0 and played.episodes[1].value == 1.0


@pytest.mark.parametrize("trick", ["bad", "nan", "huge", "forge", "words"])
def test_an_answer_against_the_contract_is_a_fault_of_its_play(trick):
    played, _, _ = play(fakes.by_seed([trick, "3", "3", "3", "3"]))
    assert [e.fault for e in played.episodes] == ["environment", "", "", "", ""]
    assert played.episodes[0].detail.startswith("step: ") and len(played.episodes[0].detail) > 8
    assert [e.value for e in played.episodes] == [0.0, 1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("trick", ["crash", "hang", "hog"])
def test_the_end_of_a_process_costs_the_plays_alive_in_it_and_no_others(trick):
    # In turn 1 the plays of the first group win, guess wrong (three times), win; in turn 2 the
    # second play ends the process. The second group wins at once.
    first = iter(["3", "0", "0", "0", "3"])

    def rule(prompt, seed):
        if prompt.count(">") > 1:
            return trick
        return next(first, "3")

    played, _, _ = play(rule, asked=groups(2))
    assert [e.fault for e in played.episodes[:5]] == ["", *["environment"] * 3, ""]
    assert [e.value for e in played.episodes[:5]] == [1.0, 0.0, 0.0, 0.0, 1.0]
    assert all(e.fault == "" and e.value == 1.0 for e in played.episodes[5:])


def test_own_processes_keep_a_crash_to_its_episode():
    config = dataclasses.replace(CONFIG, isolation="episode")
    played, sandbox, _ = play(fakes.by_seed(["crash", "3", "3", "3", "3"]), config=config)
    assert [e.fault for e in played.episodes] == ["environment", "", "", "", ""]
    assert len(sandbox.sessions) == 5


def test_a_reset_against_the_contract_is_a_fault_without_turns():
    broken = fakes.Sandbox(overrides={"reset": lambda r: {"observation": 3, "contract": ""}})
    played, _, policy = play(lambda prompt, seed: "3", broken)
    assert [(e.fault, e.turns) for e in played.episodes] == [("environment", ())] * 5
    assert policy.calls == []


@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("request_number", [0, 1])
def test_a_lost_process_is_replayed_once_and_changes_nothing(batch, request_number):
    def rule(prompt, seed):
        return "0" if prompt.count(">") < 2 else "3"

    config = dataclasses.replace(CONFIG, plays=2, hinted_plays=1)
    asked = groups(plays=(2, 1))
    calm, _, _ = play(rule, asked=asked, config=config)
    unlucky = fakes.Sandbox(lose=lambda s, b: request_number if (s, b) == (0, batch) else None)
    played, sandbox, _ = play(rule, unlucky, asked=asked, config=config)
    assert played.episodes == calm.episodes
    assert len(sandbox.sessions) == 2 and sandbox.alive() == []
    assert [e.value for e in played.episodes] == [1.0] * 3


def test_a_replayed_process_repeats_the_whole_history_of_each_play():
    unlucky = fakes.Sandbox(lose=lambda s, b: 0 if (s, b) == (0, 1) else None)
    config = dataclasses.replace(CONFIG, plays=2, hinted_plays=0, max_turns=3)
    answers = iter(["1", "2", "4", "5", "3", "3"])
    play(lambda p, s: next(answers), unlucky, groups(plays=(2, 0)), config)
    again = unlucky.sessions[1].batches[0]
    assert [(r["op"], r["play"], r.get("action")) for r in again] == [
        ("load", 0, None), ("reset", 0, None), ("tools", 0, None), ("step", 0, "1"),
        ("load", 1, None), ("reset", 1, None), ("tools", 1, None), ("step", 1, "2"),
    ]  # fmt: skip


def test_a_play_that_is_lost_last_in_its_batch_is_retried_too():
    # One plain play: load, reset, tools. The sandbox loses the process after load.
    config = dataclasses.replace(CONFIG, plays=2, hinted_plays=0)
    unlucky = fakes.Sandbox(lose=lambda s, b: 5 if (s, b) == (0, 0) else None)
    played, sandbox, _ = play(lambda p, s: "3", unlucky, groups(plays=(2, 0)), config)
    assert len(sandbox.sessions) == 2
    assert [(e.fault, e.value) for e in played.episodes] == [("", 1.0)] * 2


def test_what_is_lost_twice_is_masked_as_infra_and_other_groups_play_on():
    unlucky = fakes.Sandbox(lose=lambda s, b: 0 if s in (0, 2) and b == 0 else None)
    played, sandbox, _ = play(lambda p, s: "3", unlucky, groups(2))
    assert [e.fault for e in played.episodes] == ["infra"] * 5 + [""] * 5
    assert [e.value for e in played.episodes] == [0.0] * 5 + [1.0] * 5
    assert len(sandbox.sessions) == 3 and played.dropped == 0


def test_sessions_are_closed_when_the_sampler_fails():
    def fail(prompt, seed):
        raise MemoryError("sampler")

    sandbox = fakes.Sandbox()
    with pytest.raises(MemoryError):
        play(fail, sandbox, groups(3))
    assert len(sandbox.sessions) == 3 and sandbox.alive() == []


def test_sessions_are_closed_when_another_cannot_be_opened():
    sandbox = fakes.Sandbox()

    def open_two(environment, seed):
        if len(sandbox.sessions) == 2:
            raise OSError("no more")
        return sandbox.open(environment, seed)

    with pytest.raises(OSError):
        play(lambda p, s: "3", sandbox, groups(3), open=open_two)
    assert len(sandbox.sessions) == 2 and sandbox.alive() == []
