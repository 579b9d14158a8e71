"""What a box says is taken only where it has the right type; lost processes are asked once more."""

import concurrent.futures

import fakes
import pytest

from sandbox import crew
from sandbox import records as sandbox_records
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


class Answering:
    """Answers every request with one outcome."""

    def __init__(self, status, cpu_seconds=0.0, wall_seconds=0.0):
        self.outcome = sandbox_records.Outcome(
            status=status, cpu_seconds=cpu_seconds, wall_seconds=wall_seconds
        )
        self.sizes = []

    def submit(self, requests):
        self.sizes.append(len(requests))
        future = concurrent.futures.Future()
        future.set_result([self.outcome] * len(requests))
        return future

    def close(self):
        pass


def ask(*sessions, requests=1):
    """Ask a host of these sessions, in order; gives the statuses and how many were opened."""
    opened = iter(sessions)
    hosts = hosting.Hosts(lambda key: next(opened))
    hosts.start(0)
    (got,) = hosts.ask([hosting.Message(key=0, requests=[{"op": "reset"}] * requests)])
    return [outcome.status for outcome in got], len(sessions) - len(list(opened))


def test_a_program_that_hardly_ran_before_its_deadline_is_asked_once_more():
    assert ask(Answering("timeout", 0.1, 10.0), Answering("ok")) == (["ok"], 2)
    late = Answering("timeout", 4.9, 10.0)
    assert ask(late, late, Answering("ok")) == (["timeout"], 2)


# A program that was ended while idle, or before this message, has no clock of its own.
@pytest.mark.parametrize(("cpu_seconds", "wall_seconds"), [(9.0, 10.0), (5.0, 10.0), (0.0, 0.0)])
def test_a_program_that_used_its_time_is_not(cpu_seconds, wall_seconds):
    looping = Answering("timeout", cpu_seconds, wall_seconds)
    assert ask(looping, Answering("ok")) == (["timeout"], 1)
    assert ask(Answering("crash", 0.0, 10.0), Answering("ok")) == (["crash"], 1)


def test_the_wall_limit_holds_for_a_part_of_many_requests():
    session = Answering("ok")
    answers, _ = ask(session, requests=2 * hosting.PART + 3)
    assert session.sizes == [hosting.PART, hosting.PART, 3]
    assert answers == ["ok"] * (2 * hosting.PART + 3)


def test_a_process_that_sleeps_through_its_deadline_is_asked_once_more():
    program = "import time\nclass SlowEnv:\n    def reset(self, seed=None): time.sleep(60)\n"
    limits = sandbox_records.Limits(wall_seconds=2.0, cpu_seconds=9.0)
    sessions = []

    def start(key):
        sessions.append(boxes.open(program, limits=limits))
        return sessions[-1]

    requests = [
        {"op": "load", "play": 0, "seed": 1, "max_turns": 1}, {"op": "reset", "play": 0, "seed": 1},
    ]  # fmt: skip
    with crew.Crew(crew.CrewConfig(tier="subprocess", boxes=1)) as boxes:
        hosts = hosting.Hosts(start)
        hosts.start(0)
        (got,) = hosts.ask([hosting.Message(key=0, requests=requests)])
        hosts.close()
    assert [outcome.status for outcome in got] == ["ok", "timeout"]
    assert len(sessions) == 2
