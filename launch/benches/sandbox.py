"""How fast the sandbox runs programs and sessions, what bad programs cost, and what a box leaks.

Measurements by name: `programs` (against a cold `runsc run`), `latency`, `sessions` (against one
play per process), `mix` (1,000 programs with bad ones), `strict`, `bubblewrap`, and, only when
asked for by name since it takes minutes, `leak` (10,000 programs).

`cpu_ms` is processor time per program or episode, of the boxes and of this process together. It
says what a busy machine does not: two processors cannot do more than 2000 / cpu_ms a second.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import pathlib
import resource
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator

from sandbox import bundle, crew, install, records, usage

TRIVIAL = "print(42)"
IN_FLIGHT = 8
ROUNDS = 5
ENVIRONMENT = """
class CountEnv:
    def __init__(self):
        self.max_turns, self.total = 10, 0
    def reset(self, seed=None):
        self.total = seed or 0
        return f"Start at {self.total}. Say numbers.", {}
    def step(self, action):
        self.total += len(action)
        return f"Total {self.total}.", float(self.total % 2), False, False, {}
"""
PLAYS, STEPS = 16, 10
BAD = {  # share of 1,000 programs, source, the status it must get
    "hang": (50, "while True: pass", records.TIMEOUT),
    "memory": (20, "x = []\nwhile True: x.append(bytearray(1 << 22))", records.MEMORY),
    "flood": (10, "while True: print('x' * 65536)", records.OUTPUT_LIMIT),
}
MIX = 1000
HANG_SECONDS = 2.0
MIX_LIMITS = records.Limits(wall_seconds=120.0, cpu_seconds=240.0, memory_bytes=128 << 20)
LEAK = 10_000


def measure(only: str) -> Iterator[dict]:
    """Measure the parts whose name contains `only`; all but the leak where it is empty."""
    parts = {
        "programs": programs,
        "latency": latency,
        "sessions": sessions,
        "mix": mix,
        "strict": lambda: speed_of("gvisor_strict", 20),
        "bubblewrap": lambda: speed_of("bubblewrap", 100),
        "leak": leak,
    }
    for name, part in parts.items():
        if (only and only in name) or (not only and name != "leak"):
            yield from part()


def programs() -> Iterator[dict]:
    """Trivial programs in fresh processes and a cold `runsc run` for each, in turns."""
    with crew.Crew() as boxes:
        throughput(boxes, 20)
        warm, cold, cpu, cold_cpu = [], [], [], []
        for _ in range(ROUNDS):
            before = used_seconds(boxes)
            warm.append(throughput(boxes, 60))
            cpu.append((used_seconds(boxes) - before) / 60)
            before = children_seconds()
            cold.append(cold_throughput(boxes.tier.partition("-")[2], 8))
            cold_cpu.append((children_seconds() - before) / 8)
        ratio = statistics.median(w / c for w, c in zip(warm, cold, strict=True))
        yield {
            "name": "programs: fresh processes",
            "value": statistics.median(warm),
            "unit": "programs/s",
            "ratio": round(ratio, 2),
            "against": f"cold runsc run {statistics.median(cold):.1f}/s",
            "target": ">= 40/s and >= 3x",
            "cpu_ms": round(1000 * statistics.median(cpu), 1),
            "cold_cpu_ms": round(1000 * statistics.median(cold_cpu), 1),
            "best": round(max(warm), 1),
            "tier": boxes.tier,
        }


def throughput(boxes: crew.Crew, count: int, source: str = TRIVIAL) -> float:
    """Programs a second with IN_FLIGHT under way."""
    started = time.monotonic()
    for outcome, _ in in_flight(boxes, [source] * count, [records.Limits()] * count):
        if (outcome.status, outcome.stdout) != (records.OK, "42\n"):
            raise RuntimeError(f"a trivial program ended as {outcome}")
    return count / (time.monotonic() - started)


def in_flight(
    boxes: crew.Crew, sources: list[str], limits: list[records.Limits]
) -> list[tuple[records.Outcome, float]]:
    """Run programs, IN_FLIGHT at a time; give outcome and seconds of each, in order."""
    room, found = threading.Semaphore(IN_FLIGHT), [None] * len(sources)
    answers: collections.Counter[int] = collections.Counter()

    def done(future, index: int, started: float) -> None:
        found[index] = (future.result(), time.monotonic() - started)
        answers[index] += 1
        room.release()

    for index, source in enumerate(sources):
        room.acquire()
        future = boxes.start_run(source, limits=limits[index])
        started = time.monotonic()
        future.add_done_callback(lambda f, i=index, s=started: done(f, i, s))
    for _ in range(IN_FLIGHT):
        room.acquire()
    if set(answers.values()) != {1} or len(answers) != len(sources):
        raise RuntimeError(f"answers came {answers.most_common(3)} times; each must come once")
    return found


def used_seconds(boxes: crew.Crew) -> float:
    """Processor time of the boxes and of this process."""
    return time.process_time() + sum(usage.tree_seconds(one.process.pid) for one in boxes.boxes)


def children_seconds() -> float:
    """Give the processor time of the child processes that have ended, in seconds."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def cold_throughput(platform: str, count: int) -> float:
    """A whole `runsc run` for each program, two at a time, as a script would do it."""
    with tempfile.TemporaryDirectory() as folder:
        root = bundle.make_root(pathlib.Path(folder) / "root", ())
        commands = []
        for index in range(count):
            home = pathlib.Path(folder) / f"b{index}"
            bundle.write_bundle(home, root, ["-I", "-S", "-c", TRIVIAL])
            flags = [f"--root={folder}/state", f"--platform={platform}", "--network=none"]
            flags += ["--ignore-cgroups"] + ["--rootless"] * (os.geteuid() != 0)
            name = f"cold-{pathlib.Path(folder).name}-{index}"
            commands.append([install.find_runsc(), *flags, "run", f"--bundle={home}", name])
        started = time.monotonic()
        for pair in zip(commands[::2], commands[1::2], strict=True):
            running = [subprocess.Popen(c, stdout=subprocess.PIPE, text=True) for c in pair]
            if [one.communicate()[0] for one in running] != ["42\n"] * 2:
                raise RuntimeError(f"a cold program failed: {pair[0]}")
        return count / (time.monotonic() - started)


def latency() -> Iterator[dict]:
    """Seconds of trivial programs with IN_FLIGHT under way."""
    with crew.Crew() as boxes:
        throughput(boxes, 20)
        seconds = [s for _, s in in_flight(boxes, [TRIVIAL] * 400, [records.Limits()] * 400)]
    middle, last = statistics.median(seconds), statistics.quantiles(seconds, n=100)[98]
    yield {
        "name": "latency: p99 of a trivial program",
        "value": 1000 * last,
        "unit": "ms",
        "ratio": round(last / middle, 2),
        "against": f"p50 {1000 * middle:.0f} ms, {IN_FLIGHT} in flight",
        "target": "< 6x p50",
    }


def sessions() -> Iterator[dict]:
    """Sessions of 16 plays with 10 batched steps, against one play per process."""
    with crew.Crew() as boxes:
        play_sessions(boxes, 4, PLAYS)
        batched, single, cpu = [], [], []
        for _ in range(ROUNDS):
            before = used_seconds(boxes)
            batched.append(play_sessions(boxes, 8, PLAYS))
            cpu.append((used_seconds(boxes) - before) / (8 * PLAYS))
            single.append(play_sessions(boxes, 16, 1))
    yield {
        "name": "sessions: 16 plays x 10 steps",
        "value": statistics.median(batched),
        "unit": "episodes/s",
        "ratio": round(statistics.median(b / s for b, s in zip(batched, single, strict=True)), 1),
        "against": f"one play per process {statistics.median(single):.1f}/s",
        "target": ">= 250/s",
        "cpu_ms": round(1000 * statistics.median(cpu), 2),
        "best": round(max(batched), 1),
    }


def play_sessions(boxes: crew.Crew, count: int, plays: int) -> float:
    """Episodes a second over so many sessions, four open at a time."""
    started = time.monotonic()
    threads = [threading.Thread(target=play_one, args=(boxes, count // 4, plays)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return count * plays / (time.monotonic() - started)


def play_one(boxes: crew.Crew, count: int, plays: int) -> None:
    """Play environments one after the other, each with some plays of STEPS turns."""
    for _ in range(count):
        with boxes.open(ENVIRONMENT) as session:
            load = [{"op": "load", "play": p, "seed": p, "max_turns": STEPS} for p in range(plays)]
            reset = [{"op": "reset", "play": p, "seed": p} for p in range(plays)]
            session.step(load + reset)
            for _ in range(STEPS):
                steps = [{"op": "step", "play": p, "action": "abc"} for p in range(plays)]
                last = session.step(steps)
            totals = [outcome.value["observation"] for outcome in last]
            if totals != [f"Total {p + 3 * STEPS}." for p in range(plays)]:
                raise RuntimeError(f"a session answered {totals}")


def mix() -> Iterator[dict]:
    """1,000 programs with hanging, swelling and flooding ones, against the same without them."""
    with crew.Crew(crew.CrewConfig(max_scale=1.0)) as boxes:
        throughput(boxes, 20)
        sources = [f"print({i})" for i in range(MIX)]
        expected = [(records.OK, f"{i}\n") for i in range(MIX)]
        for index in range(MIX):
            for offset, (share, source, status) in enumerate(BAD.values()):
                if index % (MIX // share) == offset + 1:
                    sources[index], expected[index] = source, (status, None)
                    break
        hang = dataclasses.replace(MIX_LIMITS, wall_seconds=HANG_SECONDS)
        hangs = [status == records.TIMEOUT for status, _ in expected]
        limits = [hang if hung else MIX_LIMITS for hung in hangs]
        good = [
            source for source, (status, _) in zip(sources, expected, strict=True) if status == "ok"
        ]
        started = time.monotonic()
        in_flight(boxes, good, [MIX_LIMITS] * len(good))
        plain = time.monotonic() - started
        started = time.monotonic()
        found = in_flight(boxes, sources, limits)
        mixed = time.monotonic() - started
    wrong = sum(
        not right(outcome, want) for (outcome, _), want in zip(found, expected, strict=True)
    )
    burned = sum(hangs) * HANG_SECONDS / IN_FLIGHT
    yield {
        "name": f"mix: {MIX:,} programs, {sum(s != 'ok' for s, _ in expected)} of them bad",
        "value": mixed,
        "unit": "s",
        "ratio": round(mixed / (1.5 * plain + burned), 2),
        "against": f"1.5 x {plain:.1f} s without the bad + {burned:.1f} s of deadlines",
        "target": "<= 1 and 0 wrong",
        "wrong": wrong,
        "outcomes": dict(collections.Counter(outcome.status for outcome, _ in found)),
    }


def right(outcome: records.Outcome, want: tuple[str, str | None]) -> bool:
    """Say whether an outcome has the status and the output that were wanted."""
    return outcome.status == want[0] and want[1] in (None, outcome.stdout)


def speed_of(tier: str, count: int) -> Iterator[dict]:
    """Measure fresh processes of a tier, `count` at a time, or say why it cannot run here."""
    try:
        with crew.Crew(crew.CrewConfig(tier=tier)) as boxes:
            throughput(boxes, 8)
            rates = [throughput(boxes, count) for _ in range(3)]
            told = boxes.tier
    except records.SandboxUnavailable as error:
        yield {"name": tier, "value": "not measured", "unit": "", "reason": str(error)[:200]}
        return
    yield {
        "name": f"{tier}: fresh processes",
        "value": statistics.median(rates),
        "unit": "programs/s",
        "tier": told,
    }


def leak() -> Iterator[dict]:
    """10,000 programs: memory of the boxes, and what the host holds before and after."""
    with crew.Crew() as boxes:
        throughput(boxes, 100)
        before, sizes = host_holds(), [box_mib(boxes)]
        for _ in range(10):
            throughput(boxes, LEAK // 10)
            sizes.append(box_mib(boxes))
        after, recycled = host_holds(), boxes.recycled
    yield {
        "name": "leak: memory of the boxes",
        "value": sizes[-1],
        "unit": "MiB",
        "ratio": round(sizes[-1] / sizes[0], 2),
        "against": f"{sizes[0]:.0f} MiB before",
        "target": "flat after recycling; nothing of the host grows",
        "every_1000": [round(size) for size in sizes],
        "recycled": recycled,
        "host_before": before,
        "host_after": after,
    }


def box_mib(boxes: crew.Crew) -> float:
    """Give what all boxes hold in memory, in MiB."""
    return sum(usage.tree_bytes(one.process.pid) for one in boxes.boxes) / 2**20


def host_holds() -> dict[str, int]:
    """What this process and the machine hold that a sandbox could leave behind."""
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "mounts": len(pathlib.Path("/proc/self/mountinfo").read_text().splitlines()),
        "children": len(usage.tree(os.getpid())) - 1,
    }
