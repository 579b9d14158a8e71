"""The tiers that are not the default: a box for each program, and the kernel of the host."""

from __future__ import annotations

import os
import pathlib
import shutil
import time

import pytest

from sandbox import canary, crew, records

STRICT = pytest.param(
    "gvisor_strict",
    marks=pytest.mark.skipif(shutil.which("runsc") is None, reason="runsc is not installed"),
)
BUBBLEWRAP = pytest.param(
    "bubblewrap",
    marks=pytest.mark.skipif(
        shutil.which("bwrap") is None or os.geteuid() != 0,
        reason="bubblewrap needs bwrap and root",
    ),
)
ENDS = {
    "print(42)": ("ok", 0),
    "raise ValueError": ("error", 1),
    "import ctypes; ctypes.string_at(0)": ("crash", -11),
    "import os, sys; sys.stdout.flush(); os._exit(7)": ("error", 7),
    "x = []\nwhile True: x.append(bytearray(1 << 22))": ("memory", 86),
}
COUNT = """
class CountEnv:
    def __init__(self): self.n = 0
    def step(self, action):
        self.n += 1
        return str(self.n), 0.0, False, False, {}
"""


@pytest.fixture(scope="module", params=[STRICT, BUBBLEWRAP])
def boxes(request):
    with crew.Crew(crew.CrewConfig(tier=request.param, boxes=2, max_scale=1.0)) as made:
        yield made


def test_programs_end_as_in_gvisor_and_carry_the_tier(boxes):
    limits = records.Limits(memory_bytes=192 << 20, wall_seconds=60.0, cpu_seconds=60.0)
    futures = {source: boxes.start_run(source, limits=limits) for source in ENDS}
    found = {source: future.result() for source, future in futures.items()}
    assert {source: (o.status, o.value) for source, o in found.items()} == ENDS
    assert {o.tier for o in found.values()} == {boxes.tier}
    assert boxes.tier.startswith(boxes.config.tier)
    assert all(o.peak_bytes > 1 << 20 for o in found.values())


def test_calls_and_sessions_work(boxes):
    assert boxes.call("def solve(x): return x + 1", "solve", [1, 2]).value == [2, 3]
    with boxes.open(COUNT) as session:
        session.step([{"op": "load", "play": 0, "seed": 0}])
        turns = [{"op": "step", "play": 0, "action": ""}] * 2
        seen = [o.value["observation"] for _ in range(2) for o in session.step(turns)]
    assert seen == ["1", "2", "3", "4"]


def test_random_numbers_differ_between_programs(boxes):
    source = "import random, numpy, os; print(random.random(), numpy.random.rand(), os.urandom(8))"
    futures = [boxes.start_run(source) for _ in range(3)]
    outcomes = [future.result() for future in futures]
    assert {o.status for o in outcomes} <= {"ok", "error"}
    if outcomes[0].status == "error":
        pytest.skip("numpy is not installed")
    rows = [o.stdout.split(" ", 2) for o in outcomes]
    assert all(len({row[column] for row in rows}) == 3 for column in range(3))


def test_nothing_is_left_for_the_next_program(boxes):
    leave = "import os; open('/tmp/x', 'w').write('x'); open('/dev/shm/y', 'w').write('y')\n"
    leave += "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
    leave += "        import time; time.sleep(1000)"
    for _ in range(2):
        assert boxes.run(leave).status == "ok"
    program = canary.program(boxes.tier)
    boxes._pool.place(program)
    assert canary.read(program.future.result()).fault == ""


@pytest.mark.skipif(shutil.which("runsc") is None, reason="runsc is not installed")
def test_strict_runs_every_program_in_a_box_that_is_never_used_again(tmp_path):
    config = crew.CrewConfig(tier="gvisor_strict", boxes=1, max_scale=1.0, state_folder=tmp_path)
    with crew.Crew(config) as boxes:
        folder = next(tmp_path.glob("run-*"))
        first = set(boxes.boxes)
        assert [boxes.run("print(1)").stdout for _ in range(3)] == ["1\n"] * 3
        assert not first & set(boxes.boxes), "the spare of the start was used and is gone"
        if os.geteuid() == 0:
            assert "cold" not in boxes.tier
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(6):
            boxes.run("print(1)")
        settle(lambda: len(os.listdir("/proc/self/fd")) <= before + 4)
        settle(lambda: len(list(folder.glob("box*"))) <= 6)
        cgroups = (folder / "cgroups").read_text().split()
        settle(lambda: all(len(list(pathlib.Path(c).glob("box*"))) <= 3 for c in cgroups))
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(shutil.which("runsc") is None, reason="runsc is not installed")
def test_strict_gives_up_a_job_whose_deadline_passes_while_all_boxes_are_taken(tmp_path):
    config = crew.CrewConfig(tier="gvisor_strict", boxes=1, max_scale=1.0, state_folder=tmp_path)
    with crew.Crew(config) as boxes:
        hog = boxes.start_run(
            "import time; time.sleep(1000)", limits=records.Limits(wall_seconds=600.0)
        )
        limits = records.Limits(wall_seconds=1.0, deadline_seconds=1.5)
        waited = boxes.start_run("print(1)", limits=limits).result(timeout=60)
        assert waited.status == "infra" and "while it waited" in waited.detail
        assert hog.cancel()
        assert boxes.run("print(2)").stdout == "2\n"


def settle(happened) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, "what ended boxes leave grows"
        time.sleep(0.05)


def test_a_canary_that_finds_something_is_a_fault_and_a_lost_one_is_not():
    clean = records.Outcome(status="ok", stdout='{"left": [], "seconds": 0.004}')
    assert canary.read(clean) == canary.Finding(fault="", seconds=0.004)
    dirty = records.Outcome(status="ok", stdout='{"left": ["x"], "seconds": 0.004}')
    assert "x" in canary.read(dirty).fault
    assert canary.read(records.Outcome(status="crash")).fault
    assert canary.read(records.Outcome(status="infra")) == canary.Finding(fault="", seconds=None)


def test_limits_grow_on_a_slow_machine_up_to_a_bound_and_never_shrink():
    nominal = canary.REFERENCE_SECONDS
    assert canary.scale(nominal / 2, 4.0) == 1.0
    assert canary.scale(nominal * 2, 4.0) == 2.0
    assert canary.scale(nominal * 9, 4.0) == 4.0
