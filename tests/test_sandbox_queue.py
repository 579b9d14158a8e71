"""What waits for a box: the gate, deadlines, cancellation, the awaited forms, the second box."""

from __future__ import annotations

import asyncio
import concurrent.futures
import shutil
import time

import pytest

from sandbox import crew, gate, records

GVISOR = pytest.param(
    "gvisor",
    marks=pytest.mark.skipif(shutil.which("runsc") is None, reason="runsc is not installed"),
)
both_tiers = pytest.mark.parametrize("tier", ["subprocess", GVISOR])
ECHO = """
class EchoEnv:
    def step(self, action):
        import time
        time.sleep(float(action))
        return action, 0.0, False, False, {}
"""
LOAD = {"op": "load", "play": 0, "seed": 0}
HANG = "import time; time.sleep(1000)"


def step(seconds: float) -> dict:
    return {"op": "step", "play": 0, "action": str(seconds)}


def small(tier, folder, **changes) -> crew.Crew:
    changes = {"boxes": 1, "max_scale": 1.0} | changes
    return crew.Crew(crew.CrewConfig(tier=tier, state_folder=folder, **changes))


def soon() -> float:
    return time.monotonic() + 0.2


def test_the_gate_lets_in_as_many_as_it_has_room_for_then_in_order():
    entrance = gate.Gate(2)
    assert entrance.enter(soon()) and entrance.enter(soon())
    assert not entrance.enter(time.monotonic() + 0.01)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(entrance.enter, time.monotonic() + 60)
        while not entrance.waiting:
            time.sleep(0.001)
        entrance.leave()
        assert waiting.result()
    entrance.leave()
    assert entrance.enter(soon()) and not entrance.enter(time.monotonic() + 0.01)


def test_a_caller_that_gave_up_waiting_takes_no_place():
    async def give_up_and_count() -> list[bool]:
        entrance = gate.Gate(1)
        assert await entrance.enter_async(soon())
        waiting = asyncio.create_task(entrance.enter_async(time.monotonic() + 60))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        refused = await entrance.enter_async(time.monotonic() + 0.01)
        entrance.leave()
        return [refused, await entrance.enter_async(soon())]

    assert asyncio.run(give_up_and_count()) == [False, True]


@both_tiers
def test_a_full_queue_slows_the_caller_down_and_loses_nothing(tier, tmp_path):
    with small(tier, tmp_path, queue=2) as boxes:
        started = time.monotonic()
        futures = [boxes.start_run("import time; time.sleep(0.5); print(1)") for _ in range(4)]
        waited = time.monotonic() - started
        assert [f.result().stdout for f in futures] == ["1\n"] * 4
    assert waited > 0.4, "the third program was taken before the first was done"


@both_tiers
def test_what_is_not_done_by_its_deadline_is_infra_whether_it_waits_or_runs(tier, tmp_path):
    limits = records.Limits(wall_seconds=3.0, deadline_seconds=3.5)
    with small(tier, tmp_path, window=1) as boxes:
        hog = boxes.start_run(HANG, limits=records.Limits(wall_seconds=60.0))
        waiting = boxes.start_run("print(1)", limits=limits).result()
        with boxes.open(ECHO, limits=limits) as session:
            asked = session.step([LOAD])
        hog.cancel()
        assert boxes.run("print(1)").status == "ok"
    assert (waiting.status, waiting.tier) == ("infra", boxes.tier)
    assert "while it waited" in waiting.detail
    assert [o.status for o in asked] == ["infra"]


def test_a_deadline_shorter_than_the_wall_limit_is_refused():
    with pytest.raises(ValueError, match=r"deadline_seconds=1.*wall_seconds=2"):
        records.Limits(wall_seconds=2.0, deadline_seconds=1.0)


def test_scaled_limits_keep_the_room_between_wall_and_deadline():
    # Twice as slow: 3 s become 6, and the deadline moves by the same 3 s.
    limits = records.Limits(wall_seconds=3.0, cpu_seconds=2.0, deadline_seconds=10.0).scaled(2.0)
    assert (limits.wall_seconds, limits.cpu_seconds, limits.deadline_seconds) == (6.0, 4.0, 13.0)
    assert limits.memory_bytes == records.Limits().memory_bytes
    assert records.Limits(wall_seconds=3.0).scaled(2.0).patience == 606.0


@both_tiers
def test_cancelling_ends_a_running_program_and_drops_a_waiting_one(tier, tmp_path):
    with small(tier, tmp_path, window=1) as boxes:
        running = boxes.start_run(HANG, limits=records.Limits(wall_seconds=600.0))
        waiting = boxes.start_run("print(1)")
        time.sleep(0.5)
        assert waiting.cancel() and running.cancel()
        assert boxes.run("print(2)").stdout == "2\n"
        assert boxes.boxes[0].load == 0


@both_tiers
def test_a_cancelled_batch_ends_its_session(tier, tmp_path):
    with small(tier, tmp_path) as boxes, boxes.open(ECHO) as session:
        assert session.step([LOAD])[0].status == "ok"
        batch = session.submit([step(1000)])
        time.sleep(0.3)
        assert batch.cancel()
        after = session.step([step(0)])[0]
    assert after.status == "infra" and "cancelled" in after.detail


@both_tiers
def test_awaited_programs_keep_their_order_and_a_timed_out_await_ends_its_program(tier, tmp_path):
    async def use(boxes: crew.Crew) -> list:
        jobs = [boxes.run_async(f"print({i})") for i in range(6)]
        texts = [outcome.stdout for outcome in await asyncio.gather(*jobs)]
        called = await boxes.call_async("def solve(x): return x + 1", "solve", [1, 2])
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(boxes.run_async(HANG), 0.5)
        with boxes.open(ECHO) as session:
            answers = await session.step_async([LOAD, step(0)])
        return [texts, called.value, answers[1].value["observation"]]

    with small(tier, tmp_path, queue=3) as boxes:
        found = asyncio.run(use(boxes))
        assert boxes.run("print(1)").status == "ok" and boxes.boxes[0].load == 0
    assert found == [[f"{i}\n" for i in range(6)], [2, 3], "0"]


@both_tiers
def test_a_program_whose_box_died_runs_again_in_another(tier, tmp_path):
    with small(tier, tmp_path, boxes=2) as boxes:
        futures = [boxes.start_run(f"import time; time.sleep(1); print({i})") for i in range(6)]
        time.sleep(0.3)
        dying, other = boxes.boxes
        assert dying.load == other.load == 3
        dying.process.kill()
        texts = [f.result(timeout=60).stdout for f in futures]
        assert other.given == 6, "all three went to the box that lives"
    assert texts == [f"{i}\n" for i in range(6)]
