"""Hostile and control programs: each gets the verdict its header names, and the box stays clean.

Header: `# expect: verdict[|verdict]`, `# mode: run|call`, `# attack:`, `# expect-3.12:` where a
Python from 3.12 on answers otherwise, and `# not-on:` a platform whose box it ends. A program of
mode `call` has its `solve` called on INPUTS; the answers stay here. After each a canary must
find the box clean.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shutil
import sys
import time

import pytest

from sandbox import crew, equality, records

FOLDER = pathlib.Path(__file__).parent / "data" / "attacks"
FILES = sorted(FOLDER.glob("*.py"))
INPUTS = [[1], [1, 2, 3], [], [2, 2, 2, 2], [-5]]
ANSWERS = [1, 14, 0, 16, 25]
LIMITS = records.Limits(
    wall_seconds=3.0, cpu_seconds=2.0, memory_bytes=256 << 20, output_bytes=64 << 10
)
PATIENT = dataclasses.replace(LIMITS, wall_seconds=60.0, cpu_seconds=120.0)  # of a busy host
CANARY = """
import os, socket
left = [p for d in ("/tmp", "/dev/shm") for p in os.listdir(d)]
left += [p for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]
try: socket.socket().bind(("127.0.0.1", 7777))
except OSError: left += ["listener"]
print("clean" if not left else left)
"""

GVISOR = pytest.mark.skipif(
    shutil.which("runsc") is None, reason="runsc is not installed: nothing is contained"
)
LINUX = pytest.mark.skipif(
    shutil.which("bwrap") is None or os.geteuid() != 0, reason="bubblewrap needs bwrap and root"
)
TIERS = [
    pytest.param(("gvisor", "ptrace"), marks=GVISOR, id="gvisor-ptrace"),
    pytest.param(("gvisor", "systrap"), marks=GVISOR, id="gvisor-systrap"),
    pytest.param(("bubblewrap", "auto"), marks=LINUX, id="bubblewrap"),
]


def header(file: pathlib.Path, name: str) -> str:
    found = re.search(rf"^# {name}: (.*)$", file.read_text(), re.M)
    return found.group(1).strip() if found else ""


def expected(file: pathlib.Path) -> str:
    """The verdict under the Python that runs programs here, which is this one."""
    newer = header(file, "expect-3.12") if sys.version_info >= (3, 12) else ""
    return newer or header(file, "expect")


def verdict(outcome: records.Outcome, mode: str) -> str:
    if outcome.status == "ok" and mode == "run":
        return "leak" if "LEAK" in outcome.stdout else "contained"
    if outcome.status == "ok":
        return "pass" if equality.same(outcome.value, ANSWERS) else "wrong_answer"
    names = {"memory": "memory_limit", "error": "runtime_error"}
    return names.get(outcome.status, outcome.status)


def execute(boxes: crew.Crew, file: pathlib.Path) -> tuple[records.Outcome, records.Outcome]:
    """Run one program and the canary after it.

    Programs that are not about time get more of it, so that a busy machine does not decide.
    """
    limits = LIMITS if "timeout" in expected(file) else PATIENT
    if header(file, "mode") == "call":
        outcome = boxes.call(file.read_text(), "solve", INPUTS, limits)
    else:
        stdin = "x" * 3_000_000 if "stdin" in file.name else ""
        outcome = boxes.run(file.read_text(), stdin, limits)
    return outcome, boxes.run(CANARY)


@pytest.fixture(scope="module", params=TIERS)
def outcomes(request):
    """Every program once, a few at a time."""
    tier, platform = request.param
    config = crew.CrewConfig(tier=tier, platform=platform, boxes=2, window=2, max_scale=1.0)
    files = [file for file in FILES if header(file, "not-on") != platform]
    with crew.Crew(config) as boxes:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            found = dict(
                zip(files, pool.map(lambda file: execute(boxes, file), files), strict=True)
            )
        generations = [one.generation for one in boxes.boxes]
    assert generations == [1, 1], "a box died under the attacks"
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_attack_gets_its_verdict_and_leaves_the_box_clean(outcomes, file):
    if file not in outcomes:
        pytest.skip("it ends its box on this platform: not covered, see sandbox/README.md")
    outcome, canary = outcomes[file]
    found = verdict(outcome, header(file, "mode"))
    assert found in expected(file).split("|"), outcome
    assert canary.stdout == "clean\n", canary


@LINUX
def test_a_fork_bomb_in_one_bubblewrap_box_leaves_processes_to_its_neighbour():
    """The kernel counts processes by user: programs of two boxes must not share one."""
    bomb = (
        "import os, time\nfor _ in range(40):\n    try:\n        if not os.fork(): time.sleep(60)\n"
    )
    bomb += "    except OSError: break\ntime.sleep(60)"
    neighbour = (
        "import os, time\nfor _ in range(8):\n    if not os.fork(): time.sleep(1); os._exit(0)\n"
    )
    neighbour += "print('all')"
    config = crew.CrewConfig(tier="bubblewrap", boxes=1, max_scale=1.0)
    limits = records.Limits(wall_seconds=20.0, cpu_seconds=60.0)
    with crew.Crew(config) as one, crew.Crew(config) as other:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            bombs = pool.submit(one.run, bomb, "", records.Limits(wall_seconds=8.0))
            time.sleep(2.0)
            assert other.run(neighbour, "", limits).stdout == "all\n"
            assert bombs.result().status in ("timeout", "memory")
