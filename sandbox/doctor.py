"""Examine what this machine can contain: each limit is tried out, not believed."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import time

from sandbox import crew, install, platforms, records

LIMITS = records.Limits(wall_seconds=15.0, cpu_seconds=15.0, processes=8)
FORKS = """
import os, time
made = 0
try:
    for _ in range(64):
        if os.fork() == 0: time.sleep(60)
        made += 1
except OSError: pass
print(made)
"""
OUTSIDE = """
import os, socket
seen = [p for p in ("/root", "/home", "/etc/shadow", "/etc/machine-id") if os.path.exists(p)]
for path in ("/usr/x", "/etc/x", "/x", "/opt/x"):
    try: open(path, "w"); seen.append(path)
    except OSError: pass
s = socket.socket(); s.settimeout(0.3)
try: s.connect(("192.0.2.1", 80)); seen.append("network")
except OSError: pass
seen += [p for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]
print("nothing" if not seen else seen)
"""
PROBES = {  # limit: (a value, a program that breaks it, the status that shows it)
    "wall_seconds": (2.0, "import time; time.sleep(60)", records.TIMEOUT),
    "cpu_seconds": (1.0, "while True: pass", records.TIMEOUT),
    "memory_bytes": (
        128 << 20,
        "x = []\nwhile True: x.append(bytearray(1 << 22))",
        records.MEMORY,
    ),
    "output_bytes": (32 << 10, "while True: print('x' * 4096)", records.OUTPUT_LIMIT),
}


def examine(tier: str, platform: str) -> dict:
    """Say what is installed, what works, which limits hold and what to do; keys are for people."""
    found = {"works": False, "runsc": install.find_runsc() or "not installed"}
    found["runsc_version"] = version(found["runsc"])
    found["bubblewrap"] = shutil.which("bwrap") or "not installed"
    found["user"] = "root" if os.geteuid() == 0 else "not root (runsc --rootless)"
    started = time.monotonic()
    try:
        boxes = crew.Crew(crew.CrewConfig(tier=tier, platform=platform, boxes=1))
    except records.SandboxUnavailable as error:
        return {**found, "problem": str(error), "advice": advice(found, tier, {})}
    with boxes:
        found["start_seconds"] = round(time.monotonic() - started, 2)
        found["tier"] = boxes.tier
        if boxes.tier.startswith("gvisor"):
            found["platforms"] = platforms.measured(boxes.config, found["runsc"])
        enforced = limits_enforced(boxes)
        found["box_budget"] = boxes.box_budget()
        outside = boxes.run(OUTSIDE) if tier != "subprocess" else None  # it would really write
        found["programs_a_second"] = round(speed(boxes), 1)
        found["limits_scale"] = round(boxes.scale, 2)
    found["limits_enforced"] = enforced
    found["reach_outside"] = (
        outside.stdout.strip() or outside.detail if outside else "everything this user can reach"
    )
    found["works"] = all(enforced.values()) and found["reach_outside"] == "nothing"
    found["advice"] = advice(found, tier, enforced)
    return found


def version(runsc: str) -> str:
    """Ask runsc for its version; "unknown" where it does not say."""
    try:
        done = subprocess.run([runsc, "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return " ".join(done.stdout.split("\n")[0].split()[-1:]) or "unknown"


def limits_enforced(boxes: crew.Crew) -> dict[str, bool]:
    """Try each limit with a program that breaks it."""
    enforced = {}
    for name, (value, program, status) in PROBES.items():
        limits = dataclasses.replace(LIMITS, **{name: value})
        enforced[name] = boxes.run(program, limits=limits).status == status
    forks = boxes.run(FORKS, limits=LIMITS).stdout.strip()
    enforced["processes"] = forks.isdigit() and int(forks) <= LIMITS.processes
    return enforced


def speed(boxes: crew.Crew, programs: int = 20) -> float:
    """Measure fresh programs a second, `programs` at once."""
    started = time.monotonic()
    futures = [boxes.start_run("print(42)") for _ in range(programs)]
    for future in futures:
        future.result()
    return programs / (time.monotonic() - started)


def advice(found: dict, tier: str, enforced: dict[str, bool]) -> str:
    """Say what to do about what was found."""
    if found["runsc"] == "not installed":
        return install.missing_message(None)
    if tier == "subprocess":
        return "This tier is no security boundary; use tier gvisor for programs a model wrote."
    if tier == "bubblewrap":
        return "Programs reach the kernel of this host; use tier gvisor for those a model wrote."
    missing = [name for name, holds in enforced.items() if not holds]
    if missing:
        return f"Not enforced here: {', '.join(missing)}. Do not run untrusted programs."
    said = []
    loose = [
        n for n, told in found.get("box_budget", {}).items() if not told.startswith("enforced")
    ]
    if loose:
        said.append(
            f"No budget for a whole box holds here ({', '.join(loose)}): each program is limited, "
            "their sum is not. Run as root with cgroups that may be written."
        )
    if found.get("limits_scale", 1.0) > 1.5:
        said.append("This machine is slow or busy: limits are longer by limits_scale.")
    if "20240729" in found["runsc_version"]:
        said.append(
            "This build of gVisor is of July 2024 and lacks later fixes; where a newer one can be "
            "had, name it with RUNSC_PATH."
        )
    return " ".join(said) or "Nothing to do."
