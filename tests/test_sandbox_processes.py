"""What becomes of boxes: they are replaced when they die, and die when their owner does."""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from sandbox import budget, crew, janitor, records

ROOT = pathlib.Path(__file__).parents[1]
NEEDS_RUNSC = pytest.mark.skipif(shutil.which("runsc") is None, reason="runsc is not installed")
GVISOR = pytest.param("gvisor", marks=NEEDS_RUNSC)
both_tiers = pytest.mark.parametrize("tier", ["subprocess", GVISOR])
all_tiers = pytest.mark.parametrize(
    "tier",
    [
        "subprocess",
        GVISOR,
        pytest.param("gvisor_strict", marks=NEEDS_RUNSC),
        pytest.param(
            "bubblewrap",
            marks=pytest.mark.skipif(
                shutil.which("bwrap") is None or os.geteuid() != 0,
                reason="bubblewrap needs bwrap and root",
            ),
        ),
    ],
)

IDLE = """
class IdleEnv:
    def reset(self, seed=None): return "ready"
    def step(self, action):
        import threading, time
        if action == "burn":
            def f():
                while True: pass
            threading.Thread(target=f, daemon=True).start()
        return str(time.process_time()), 0.0, False, False, {}
"""
LOAD = {"op": "load", "play": 0, "seed": 0, "max_turns": 5, "pacing": "respect"}

TRAINER = """
import pathlib, sys, time
from sandbox import crew
folder = pathlib.Path(sys.argv[2])
boxes = crew.Crew(crew.CrewConfig(tier=sys.argv[1], boxes=1, state_folder=folder))
sessions = [boxes.open("class IdleEnv: pass") for _ in range(3)]
for session in sessions:
    session.step([{"op": "load", "play": 0, "seed": 0}])
boxes.start_run("import time; time.sleep(1000)")
print("up", flush=True)
time.sleep(1000)
"""


def processes_of(folder: pathlib.Path) -> list[str]:
    """Command lines of living processes that name a folder, and of their descendants."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                line = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:
                continue
            if str(folder).encode() in line:
                found.append(line.decode(errors="replace"))
    return found


def wait_until(happened, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        time.sleep(0.05)


@all_tiers
def test_kill_9_of_the_owner_leaves_no_process_and_no_file(tier, tmp_path):
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, tier, str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert trainer.stdout.readline() == b"up\n"
    assert processes_of(tmp_path) and list(tmp_path.glob("run-*"))
    cgroups = (next(tmp_path.glob("run-*")) / "cgroups").read_text().split()
    trainer.send_signal(signal.SIGKILL)
    trainer.wait()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and (processes_of(tmp_path) or list(tmp_path.glob("run-*"))):
        time.sleep(0.1)
    assert not processes_of(tmp_path)
    assert not list(tmp_path.glob("run-*"))
    assert not [path for path in cgroups if os.path.exists(path)]
    mounts = pathlib.Path("/proc/self/mountinfo").read_text()
    assert str(tmp_path) not in mounts


@all_tiers
def test_close_leaves_no_process_and_no_file(tier, tmp_path):
    with crew.Crew(crew.CrewConfig(tier=tier, boxes=1, state_folder=tmp_path)) as boxes:
        boxes.open(IDLE).step([LOAD])
        pending = boxes.start_run("import time; time.sleep(1000)")
    assert pending.result(timeout=5).status == "infra"
    assert not processes_of(tmp_path) and not list(tmp_path.iterdir())
    assert boxes.run("print(1)").status == "infra"


@both_tiers
def test_a_box_that_dies_answers_infra_is_replaced_and_programs_run_again(tier, tmp_path):
    with crew.Crew(crew.CrewConfig(tier=tier, boxes=1, state_folder=tmp_path)) as boxes:
        session = boxes.open(IDLE)
        assert session.step([LOAD])[0].status == "ok"
        job = boxes.start_run("import time; time.sleep(1.5); print('done')")
        time.sleep(0.5)
        janitor.kill_boxes(next(tmp_path.glob("run-*")))
        lost = session.step([LOAD])[0]
        again = job.result(timeout=30)
        fresh = boxes.open(IDLE).step([LOAD])[0]
    assert lost.status == "infra" and "box" in lost.detail
    assert (again.status, again.stdout) == ("ok", "done\n")
    assert fresh.status == "ok"


def test_what_boxes_died_with_is_run_alone_and_its_neighbours_stay(tmp_path):
    killer = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)"
    config = crew.CrewConfig(tier="subprocess", boxes=1, state_folder=tmp_path)
    with crew.Crew(config) as boxes:
        assert boxes.run(killer).status == "infra"  # twice in the shared box, then alone
        assert boxes.boxes[0].generation == 3
        with boxes.open("class AEnv: pass") as neighbour:
            load = [{"op": "load", "play": 0, "seed": 0}]
            assert neighbour.step(load)[0].status == "ok"
            assert boxes.run(killer).status == "infra"
            assert neighbour.step(load)[0].status == "ok"
        assert boxes.boxes[0].generation == 3
        assert boxes.run("print(1)").stdout == "1\n"


def test_sweep_removes_what_a_dead_owner_left_and_only_that(tmp_path):
    dead, alive, foreign = (tmp_path / f"run-{name}" for name in ("dead", "alive", "foreign"))
    for folder in (dead, alive, foreign):
        folder.mkdir()
    janitor.write_owner(alive)
    (dead / "owner.json").write_text(json.dumps({"pid": os.getpid(), "started": 1}))
    (tmp_path / "other").mkdir()
    assert janitor.sweep(tmp_path) == [dead]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other", "run-alive", "run-foreign"]


def test_cgroups_of_dead_crews_are_swept_and_no_others(tmp_path):
    with subprocess.Popen(["true"]) as ended:
        pass
    dead, alive = tmp_path / f"run-{ended.pid}-0a1b2c3d", tmp_path / f"run-{os.getpid()}-0a1b2c3d"
    busy, other = tmp_path / f"run-{ended.pid}-11111111", tmp_path / "run-time"
    for folder in (dead, alive, busy, other):
        (folder / "box0-1").mkdir(parents=True)
    (busy / "box0-1" / "process").touch()  # a directory that cannot be removed, as a busy cgroup
    budget.sweep(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([alive, busy, other])


def test_without_runsc_the_crew_says_what_to_do_and_does_not_fall_back(tmp_path):
    config = crew.CrewConfig(runsc="/nonexistent/runsc", state_folder=tmp_path)
    with pytest.raises(records.SandboxUnavailable, match="subprocess") as raised:
        crew.Crew(config)
    assert "install" in str(raised.value) and not list(tmp_path.glob("run-*"))


def test_a_runsc_that_does_not_start_is_told_with_its_last_words(tmp_path):
    broken = tmp_path / "runsc"
    broken.write_text("#!/bin/sh\necho no platform here >&2\nexit 1\n")
    broken.chmod(0o755)
    config = crew.CrewConfig(runsc=str(broken), platform="ptrace", state_folder=tmp_path / "state")
    with pytest.raises(records.SandboxUnavailable, match="no platform here"):
        crew.Crew(config)


def test_subprocess_tier_warns_that_it_is_no_boundary(capfd, tmp_path):
    with crew.Crew(crew.CrewConfig(tier="subprocess", boxes=1, state_folder=tmp_path)) as boxes:
        assert boxes.run("print(1)").tier == "subprocess"
    assert "no security boundary" in capfd.readouterr().err


@NEEDS_RUNSC
def test_the_budget_of_a_box_is_read_back_and_ends_a_box_that_breaks_it(tmp_path):
    config = crew.CrewConfig(boxes=1, box_memory_bytes=512 << 20, state_folder=tmp_path)
    with crew.Crew(config) as boxes:
        told = boxes.box_budget()
        if not told["memory"].startswith("enforced"):
            assert told["memory"].startswith("not enforced: ")
            pytest.skip(f"no memory cgroup can be made here: {told['memory']}")
        bomb = "x = []\nwhile True: x.append(bytearray(1 << 22))"
        outcome = boxes.run(bomb, limits=records.Limits(memory_bytes=8 << 30, wall_seconds=120))
        assert outcome.status == "infra", "nobody knows whose memory broke the budget of the box"
        assert boxes.run("print(1)").status == "ok"


@NEEDS_RUNSC
def test_programs_see_gvisors_kernel_and_not_the_hosts(tmp_path):
    with crew.Crew(crew.CrewConfig(boxes=1, state_folder=tmp_path)) as boxes:
        outcome = boxes.run("import os; print(os.uname().release, os.getpid(), os.getuid() > 0)")
    assert outcome.stdout == "4.4.0 1 True\n" and outcome.tier.startswith("gvisor-")
    assert os.uname().release != "4.4.0"


@NEEDS_RUNSC
def test_second_start_uses_the_platform_measured_before(tmp_path):
    config = crew.CrewConfig(boxes=1, state_folder=tmp_path / "s", cache_folder=tmp_path / "c")
    with crew.Crew(config) as boxes:
        first = boxes.tier
    measured = json.loads(next((tmp_path / "c").glob("platform-*.json")).read_text())
    assert first == f"gvisor-{measured['platform']}" and set(measured["seconds"]) <= {
        "ptrace",
        "systrap",
    }
    with crew.Crew(config) as boxes:
        assert boxes.tier == first


@both_tiers
def test_a_session_that_burns_the_processor_while_idle_is_ended(tier, tmp_path):
    with crew.Crew(crew.CrewConfig(tier=tier, boxes=1, state_folder=tmp_path)) as boxes:
        session = boxes.open(IDLE)
        burn, look = ({"op": "step", "play": 0, "action": action} for action in ("burn", "look"))
        before = float(session.step([LOAD, burn])[1].value["observation"])
        for _ in range(4):
            time.sleep(9)  # more than three looks
            outcome = session.step([look])[0]
            if outcome.status != "ok":
                break
            now = float(outcome.value["observation"])
            assert now - before < 6, "two thirds of the time it worked, and it was not ended"
            before = now
        else:
            pytest.skip("the machine was too busy to let the session work")
    assert outcome.status == "timeout" and "while nothing was asked" in outcome.detail


@both_tiers
def test_a_session_that_works_in_its_batches_is_not_taken_for_idle_work(tier, tmp_path):
    source = """
class WorkEnv:
    def step(self, action):
        import time
        end = time.process_time() + 0.6
        while time.process_time() < end: pass
        return "ok", 0.0, False, False, {}
"""
    with crew.Crew(crew.CrewConfig(tier=tier, boxes=1, state_folder=tmp_path)) as boxes:
        session = boxes.open(source, limits=records.Limits(wall_seconds=120))
        session.step([LOAD])
        for _ in range(4):
            time.sleep(0.9)
            outcome = session.step([{"op": "step", "play": 0, "action": ""}])[0]
            assert outcome.status == "ok", outcome


@both_tiers
def test_hung_programs_do_not_hold_up_the_others(tier, tmp_path):
    limits = records.Limits(wall_seconds=1.5)
    config = crew.CrewConfig(tier=tier, boxes=2, state_folder=tmp_path)
    with crew.Crew(config) as boxes, concurrent.futures.ThreadPoolExecutor(8) as pool:
        sources = ["while True: pass" if i % 8 == 0 else f"print({i})" for i in range(32)]
        found = list(pool.map(lambda source: boxes.run(source, limits=limits), sources))
    for i, outcome in enumerate(found):
        expected = ("timeout", "") if i % 8 == 0 else ("ok", f"{i}\n")
        assert (outcome.status, outcome.stdout) == expected, outcome


@both_tiers
def test_worn_boxes_are_replaced_and_open_sessions_keep_theirs(tier, tmp_path):
    config = crew.CrewConfig(tier=tier, boxes=1, recycle_programs=3, state_folder=tmp_path)
    with crew.Crew(config) as boxes:
        first = boxes.boxes[0]
        session = boxes.open(IDLE)
        assert session.step([LOAD])[0].status == "ok"
        assert [boxes.run(f"print({i})").stdout for i in range(8)] == [f"{i}\n" for i in range(8)]
        wait_until(lambda: boxes.boxes[0] is not first)
        assert not first.finished
        assert session.step([{"op": "reset", "play": 0, "seed": 0}])[0].status == "ok"
        session.close()
        wait_until(lambda: first.finished)
        assert boxes.run("print(1)").status == "ok"
    assert not processes_of(tmp_path)
