"""Choose gVisor's platform by measuring: ten trivial programs on each, the faster one wins.

The choice is kept per machine, so that a second start needs no measurement. kvm is never tried: it
can hang for a minute on machines where /dev/kvm opens.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import pathlib
import platform
import sys
import time
from collections.abc import Callable

from sandbox import box, install, records, work

CANDIDATES = ("ptrace", "systrap")
PROGRAMS = 10
PROBE_SECONDS = 20.0


def choose(runsc: str, cache_folder: pathlib.Path, ground: Callable[[str], object]) -> str:
    """Give the platform measured before on this machine, or measure now.

    Raises:
      records.SandboxUnavailable: no platform starts.
    """
    cache = cache_file(cache_folder, runsc)
    try:
        known = json.loads(cache.read_text())["platform"]
        if known in CANDIDATES:
            return known
    except (OSError, ValueError, KeyError, TypeError):
        pass
    seconds, failures = {}, {}
    for candidate in CANDIDATES:
        try:
            seconds[candidate] = probe(ground(candidate))
        except (RuntimeError, concurrent.futures.TimeoutError) as error:
            failures[candidate] = str(error) or f"no answer within {PROBE_SECONDS} s"
    if not seconds:
        raise records.SandboxUnavailable(
            f"runsc ({runsc}) starts on no platform: {failures}."
            f"{install.mounts_advice(str(failures))} Run `python -m sandbox doctor`, or ask for "
            "the tier `subprocess`, which is no security boundary."
        )
    best = min(seconds, key=seconds.get)
    measured = {"platform": best, "seconds": seconds, "failures": failures}
    try:
        cache_folder.mkdir(parents=True, exist_ok=True)
        cache.write_text(json.dumps(measured))
    except OSError as error:
        print(f"sandbox: cannot keep the measured platform: {error}", file=sys.stderr)
    return best


def cache_file(cache_folder: pathlib.Path, runsc: str) -> pathlib.Path:
    """Name the file that remembers the platform chosen for this machine and runsc."""
    return cache_folder / f"platform-{machine_key(runsc)}.json"


def measured(config, runsc: str) -> dict:
    """What was measured when the platform was chosen; empty where it was not."""
    try:
        return json.loads(cache_file(config.cache_folder, config.runsc or runsc).read_text())
    except (OSError, ValueError):
        return {}


def probe(ground) -> float:
    """Seconds for PROGRAMS trivial programs in one box, after a first one."""
    one = box.Box(
        launch=lambda generation: ground.launch(f"probe-{ground.platform}-{generation}"),
        tidy=lambda generation: None,
        tier=ground.tier,
        window=1,
        rehome=lambda program, lost: lost.add(program),
    )
    try:
        one.ready.result(timeout=PROBE_SECONDS)
        run_trivial(one)
        started = time.monotonic()
        for _ in range(PROGRAMS):
            run_trivial(one)
        return time.monotonic() - started
    finally:
        one.close()


def run_trivial(one: box.Box) -> None:
    """Run a trivial program; a RuntimeError where it does not print its answer."""
    program = work.new_job(
        "run",
        "0",
        records.Limits(wall_seconds=PROBE_SECONDS),
        {"source": "print(42)"},
        deadline=time.monotonic() + PROBE_SECONDS,
    )
    one.add(program)
    outcome = program.future.result(timeout=PROBE_SECONDS)
    if outcome.status != records.OK or outcome.stdout != "42\n":
        raise RuntimeError(f"a trivial program ended as {outcome.status}: {outcome.detail}")


def machine_key(runsc: str) -> str:
    """Name this machine, kernel and runsc build."""
    stat = os.stat(runsc)
    parts = (
        platform.node(),
        platform.release(),
        os.cpu_count(),
        runsc,
        stat.st_size,
        stat.st_mtime,
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
