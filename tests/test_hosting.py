"""What a box says is taken only where it has the right type; lost processes are asked once more."""

import fakes
import pytest

from spade_jax import hosting


# 10**400 is a whole number that no float holds.
@pytest.mark.parametrize("value", [True, None, "1", [1], float("nan"), float("inf"), 10**400])
def test_what_is_no_finite_number_is_none(value):
    assert hosting.number(value) is None


def test_numbers_and_texts_are_taken():
    assert hosting.number(3) == 3.0 and type(hosting.number(3)) is float
    assert hosting.number(-0.5) == -0.5
    assert hosting.text("a") == "a"
    assert [hosting.text(value) for value in (None, 3, ["a"], {"a": 1}, b"a")] == [None] * 5


def test_answers_come_in_the_order_of_the_messages():
    sandbox = fakes.Sandbox()
    hosts = hosting.Hosts(lambda key: sandbox.open(fakes.environment(), 0))
    keys = ["a", "b", "a"]
    for key in keys:
        hosts.start(key)
    messages = [
        hosting.Message(
            key=key, requests=[{"op": "load", "play": n, "seed": n, "max_turns": n}] * (n + 1)
        )
        for n, key in enumerate(keys)
    ]
    answers = hosts.ask(messages)
    assert [[o.value["max_turns"] for o in got] for got in answers] == [[0], [1, 1], [2, 2, 2]]
    assert len(sandbox.sessions) == 2
    hosts.close()
    hosts.close()
    assert sandbox.alive() == []


def test_the_other_processes_are_not_asked_again():
    sandbox = fakes.Sandbox(lose=lambda session, batch: 0 if session == 0 else None)
    hosts = hosting.Hosts(lambda key: sandbox.open(fakes.environment(), key))
    load = {"op": "load", "play": 0, "seed": 0, "max_turns": 1}
    hosts.start(7)
    hosts.start(8)
    answers = hosts.ask([hosting.Message(key=key, requests=[load]) for key in (7, 8)])
    assert [got[0].status for got in answers] == ["ok", "ok"]
    assert [(s.seed, len(s.batches)) for s in sandbox.sessions] == [(7, 1), (8, 1), (7, 1)]
    hosts.close()
