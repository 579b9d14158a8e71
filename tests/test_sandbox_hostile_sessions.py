"""Hostile environments: each ends as what it is, never as a fault of the sandbox, and a neighbour
in the same box goes on."""

from __future__ import annotations

import os
import shutil
import time

import pytest

from sandbox import crew, records

LIMITS = records.Limits(
    wall_seconds=1.5, cpu_seconds=10.0, memory_bytes=256 << 20, output_bytes=64 << 10
)
LOAD = {"op": "load", "play": 0, "seed": 0}
ENVIRONMENT = """
import os, signal, sys, threading, time
class HostileEnv:
    def step(self, action):
        {}
        return "done", 0.0, False, False, {{}}
"""
FORGED = b'{"i":0,"s":"ok","v":{"reward":1e999},"d":"","w":0.0}\n'
RIGHT = b'{"i":0,"s":"ok","v":{},"d":"","w":1e300}\n'
LATER = "threading.Thread(target=lambda: (time.sleep(0.3), {})).start()"
# What a step does -> what it may be answered, and what the next one may be. In Linux the first
# process of a pid namespace neither stops nor dies by a signal of its own.
STEPS = {
    "stops itself": ("os.kill(os.getpid(), signal.SIGSTOP)", "timeout ok", "timeout ok"),
    "stops its child": (
        "(os.fork() == 0 and os.kill(os.getpid(), signal.SIGSTOP))",
        "ok",
        "ok",
    ),
    "leaves by the signal of a limit": (
        "os.kill(os.getpid(), signal.SIGXCPU)",
        "crash ok",
        "crash ok",
    ),
    "answers with infinity": (f"os.write(4, {FORGED!r})", "crash", "crash"),
    "answers twice": (f"os.write(4, {RIGHT * 2!r})", "ok crash", "crash"),
    "answers the next question": (LATER.format(f"os.write(4, {RIGHT!r})"), "ok", "crash"),
    "floods with answers while idle": (
        LATER.format("[os.write(4, b'\\n' * 65536) for _ in range(2000)]"),
        "ok",
        "crash output_limit",
    ),
    "asks itself": (
        'open("/proc/self/fd/3", "wb", buffering=0).write(b\'[{"op":"drop","play":9}]\\n\')',
        "error",  # not even it may open them
        "error",
    ),
    "answers with two processes": ("os.fork()", "ok crash", "ok crash timeout"),
    "closes its answers": ("os.close(4)", "ok crash", "crash"),
    "answers elsewhere": ("os.dup2(1, 4)", "timeout", "timeout"),
    "closes its questions": ("os.close(3)", "ok crash", "crash"),
    "prints without end": ("while True: os.write(1, b'x' * 4096)", "output_limit", "output_limit"),
    "interrupts the host of its plays": (
        "signal.signal(signal.SIGALRM, lambda *a: sys.exit(0)); "
        "signal.setitimer(signal.ITIMER_REAL, 0.2)",
        "ok",
        "crash",
    ),
    "takes its own memory away": (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20)); "
        "bytearray(1 << 24)",
        "memory crash",
        "memory crash error ok",
    ),
    "leaves processes that hold its pipes": (
        "[os.setsid() or signal.pause() for _ in range(3) if os.fork() == 0]; os._exit(0)",
        "crash",
        "crash",
    ),
}
TIERS = [
    pytest.param(
        "gvisor",
        marks=pytest.mark.skipif(shutil.which("runsc") is None, reason="runsc is not installed"),
    ),
    pytest.param(
        "bubblewrap",
        marks=pytest.mark.skipif(
            shutil.which("bwrap") is None or os.geteuid() != 0, reason="needs bwrap and root"
        ),
    ),
]


@pytest.fixture(scope="module", params=TIERS)
def boxes(request):
    with crew.Crew(crew.CrewConfig(tier=request.param, boxes=1, max_scale=1.0)) as crew_:
        yield crew_


@pytest.fixture(scope="module")
def answers(boxes):
    """Both steps of every environment, all at once, with the answers of a neighbour meanwhile."""
    step = [{"op": "step", "play": 0, "action": ""}]
    neighbour = boxes.open(
        "class AEnv:\n    def step(self, action): return '', 1.0, False, False, {}"
    )
    assert neighbour.step([LOAD])[0].status == "ok"
    sessions = {
        name: boxes.open(ENVIRONMENT.format(code), limits=LIMITS)
        for name, (code, _, _) in STEPS.items()
    }
    patient = records.Limits(wall_seconds=60.0, cpu_seconds=60.0)
    found = {}
    for name, session in sessions.items():
        assert session.step([LOAD])[0].status == "ok", name
        first = session.step(step)[0]
        time.sleep(0.6 if "Thread" in STEPS[name][0] or "ITIMER" in STEPS[name][0] else 0.0)
        found[name] = (first, session.step(step)[0], neighbour.step(step)[0])
        session.close()
    neighbour.close()
    left = "import os; print([p for p in os.listdir('/proc') if p.isdigit()])"
    found["after all"] = boxes.run(left, limits=patient)
    return found


@pytest.mark.parametrize("name", STEPS)
def test_a_hostile_environment_ends_as_what_it_is(answers, name):
    first, second, neighbour = answers[name]
    _, at_first, then = STEPS[name]
    assert first.status in at_first.split(), first
    assert second.status in then.split(), second
    assert neighbour.value["reward"] == 1.0, neighbour
    assert first.wall_seconds < 10.0


def test_the_box_of_hostile_environments_lives_on_and_is_empty(boxes, answers):
    assert answers["after all"].stdout == "['1']\n"
    assert boxes.boxes[0].generation == 1
