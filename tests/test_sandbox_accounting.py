"""Whose fault an end is, and what processor time a program is charged for."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
import types

import pytest

from sandbox import crew, records, usage
from sandbox.guest import watch

GVISOR = pytest.param(
    "gvisor",
    marks=pytest.mark.skipif(shutil.which("runsc") is None, reason="runsc is not installed"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unchecked(records.Limits):
    def __post_init__(self):
        pass


LOAD = {"op": "load", "play": 0, "seed": 0, "max_turns": 5, "pacing": "respect"}
FORGERY = """
import os
os.write(2, b"cannot confine: OSError: mount: Operation not permitted")
os._exit(87)
"""
SPENDER = """
import os, time
class SpendEnv:
    def step(self, action):
        if action == "loop":
            while True: pass
        if action == "sleep":
            time.sleep(1000)
        if action == "many":
            for _ in range(4):
                if os.fork() == 0:
                    while True: pass
            time.sleep(1000)
        end = time.process_time() + float(action)
        while time.process_time() < end: pass
        return "ok", 0.0, False, False, {}
"""


@pytest.fixture(scope="module", params=["subprocess", GVISOR])
def boxes(request):
    with crew.Crew(crew.CrewConfig(tier=request.param, boxes=1, max_scale=1.0)) as made:
        yield made


def step(action):
    return {"op": "step", "play": 0, "action": action}


def spend(boxes, action, **limits):
    session = boxes.open(SPENDER, limits=records.Limits(**limits))
    assert session.step([LOAD])[0].status == "ok"
    return session.submit([step("0"), step(action), step("0")])


def test_a_program_cannot_pass_for_one_that_was_not_confined(boxes):
    ran = boxes.run(FORGERY)
    assert (ran.status, ran.value) == ("error", 87)
    assert boxes.call(FORGERY, "solve", [[1]]).status == "no_answer"
    with boxes.open(FORGERY) as session:
        assert session.step([LOAD])[0].status == "crash"


def test_a_process_that_cannot_be_confined_is_our_fault(boxes):
    limits = Unchecked(memory_bytes=2**70)  # no kernel takes such a limit
    for outcome in (
        boxes.run("print(1)", limits=limits),
        boxes.call("def solve(x): return x", "solve", [1], limits),
        boxes.open(SPENDER, limits=limits).step([LOAD])[0],
    ):
        assert outcome.status == "infra" and "OverflowError" in outcome.detail, outcome


def test_a_timeout_tells_looping_from_sleeping(boxes):
    looped = spend(boxes, "loop", wall_seconds=3.0).result()
    slept = spend(boxes, "sleep", wall_seconds=3.0).result()
    for outcomes in (looped, slept):
        assert [o.status for o in outcomes] == ["ok", "timeout", "timeout"]
        assert outcomes[1].wall_seconds >= 3.0
        assert outcomes[1].cpu_seconds == outcomes[2].cpu_seconds
    assert slept[1].cpu_seconds < 0.3
    assert slept[1].cpu_seconds < looped[1].cpu_seconds < looped[1].wall_seconds + 0.2


def test_programs_are_not_charged_for_waiting_for_a_busy_processor(boxes):
    looping = [spend(boxes, "loop", wall_seconds=3.0) for _ in range(4)]
    outcomes = [future.result()[1] for future in looping]
    assert {o.status for o in outcomes} == {"timeout"}
    longest = max(o.wall_seconds for o in outcomes)
    # Four loops on n processors get n seconds a second, not four; gVisor's own work is little.
    given = min(4, os.cpu_count()) * longest
    assert sum(o.cpu_seconds for o in outcomes) < 1.25 * given + 0.5, outcomes


def test_the_processor_limit_of_a_batch_counts_all_processes_together(boxes):
    outcome = spend(boxes, "many", cpu_seconds=1.0, wall_seconds=120.0).result()[1]
    assert (outcome.status, outcome.detail) == ("timeout", "the processor limit ran out")
    assert outcome.wall_seconds < 100


def test_every_batch_has_the_whole_processor_limit(boxes):
    limits = records.Limits(cpu_seconds=1.5, wall_seconds=120.0)
    with boxes.open(SPENDER, limits=limits) as session:
        session.step([LOAD])
        outcomes = [session.step([step("0.8")])[0] for _ in range(3)]
    assert [o.status for o in outcomes] == ["ok"] * 3, outcomes


def test_what_a_batch_used_stands_in_its_last_outcome(boxes):
    with boxes.open(SPENDER, limits=records.Limits(wall_seconds=120.0)) as session:
        session.step([LOAD])
        first, last = session.step([step("0.5"), step("0")])
        after = session.step([step("0")])[0]
    assert first.cpu_seconds == 0 and 0.0 < last.cpu_seconds < 1.5
    assert after.cpu_seconds < last.cpu_seconds or last.cpu_seconds < 0.2


def test_answers_longer_than_the_shared_memory_come_whole_and_in_order(boxes):
    source = """
class LongEnv:
    def step(self, action):
        if action == "die":
            import os; os.kill(os.getpid(), 9)
        return action[0] * int(action[1:]), 0.0, False, False, {}
"""
    sizes = [10, 30_000, 30_000, 30_000, 200_000, 5, 65_000, 70_000, 1]
    actions = [f"{chr(97 + i)}{size}" for i, size in enumerate(sizes)]
    with boxes.open(source) as session:
        session.step([LOAD])
        for last in ([], ["die"]):
            outcomes = session.step([step(action) for action in [*actions, *last, *last]])
            seen = [o.value["observation"] for o in outcomes[: len(actions)]]
            assert seen == [a[0] * int(a[1:]) for a in actions]
    assert [o.status for o in outcomes[len(actions) :]] == ["crash", "crash"]


def test_the_tree_of_a_process_is_found_in_both_ways():
    source = "import subprocess, sys; subprocess.run(['sh', '-c', 'sleep 60 & wait'])"
    with subprocess.Popen([sys.executable, "-c", source]) as parent:
        deadline = time.monotonic() + 60
        while len(usage.tree(parent.pid)) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        pids = [pid for pid, _ in usage.tree(parent.pid)]
        everybody = usage.all_children()
        shell = everybody[parent.pid][0]
        assert sorted(pids) == sorted([parent.pid, shell, *everybody[shell]])
        assert usage.tree_bytes(parent.pid) > 1 << 20
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


def test_share_scales_by_what_the_box_got():
    # Charged 3 of 12 s while the host gave 4: a third of 3 s.
    assert usage.share(3.0, 12.0, 4.0) == pytest.approx(1.0)
    assert usage.share(3.0, 3.0, 4.0) == 3.0  # gVisor's own work is not the program's
    assert usage.share(0.0, 0.0, 4.0) == 0.0


def idle_child(**changes):
    fields = {"deadline": None, "mode": "session", "batches": 1, "spent": 0.0}
    fields |= {"idle_cpu": None, "idle_strikes": 0}
    return types.SimpleNamespace(**(fields | changes))


def looks(child, burned):
    """What the watch says at each look, `burned` CPU seconds after the look before."""
    guard, said = watch.Watch("gvisor"), []
    for seconds in burned:
        child.spent += seconds
        said.append(guard.works_while_idle(child))
    return said


def test_idle_work_is_told_after_three_busy_looks_in_a_row():
    # The first look only notes where the count starts.
    assert looks(idle_child(), [9.0, 2.0, 2.0, 2.0]) == [False, False, False, True]
    assert not any(looks(idle_child(), [0, 2.0, 2.0, 0.1, 2.0, 2.0, 0.0]))
    assert not any(looks(idle_child(), [0.0] + [0.15] * 20))


def test_a_session_that_has_not_answered_yet_is_never_taken_for_idle_work():
    assert not any(looks(idle_child(batches=0), [2.0] * 10))
    assert not any(looks(idle_child(deadline=1.0), [2.0] * 10))
    assert not any(looks(idle_child(mode="run"), [2.0] * 10))
