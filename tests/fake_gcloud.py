"""Stand-in for gcloud, put on PATH: a slice of four hosts that are folders of this machine.

FAKE_GCLOUD names a folder. There it keeps the state of the request, a log of every call, and the
homes of the hosts; a script sent with ssh is run by bash in each. A request becomes active at the
third look. After `preempt` lies there, the next look finds it suspending, later ones suspended, its
hosts gone; while it is suspending it cannot be deleted.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

PLACE = pathlib.Path(os.environ["FAKE_GCLOUD"])
HOSTS = 4


def main(arguments: list[str]) -> int:
    with open(PLACE / "calls.jsonl", "a") as calls:
        calls.write(json.dumps(arguments) + "\n")
    what, verb = arguments[2], arguments[3]
    assert arguments[:2] == ["compute", "tpus"] and "--zone=z" in arguments, arguments
    if what == "queued-resources":
        return queued(verb)
    return scp(arguments) if verb == "scp" else ssh(arguments)


def queued(verb: str) -> int:
    state = PLACE / "looks"
    if verb == "create":
        if state.exists():
            print("ALREADY_EXISTS", file=sys.stderr)
            return 1
        state.write_text("0")
        for number in range(HOSTS):
            (PLACE / f"host{number}").mkdir()
    elif not state.exists():
        print("NOT_FOUND: the queued resource was not found", file=sys.stderr)
        return 1
    elif verb == "delete":
        if int(state.read_text()) == -1000:
            print("FAILED_PRECONDITION: the queued resource is SUSPENDING", file=sys.stderr)
            return 1
        state.unlink()
        for number in range(HOSTS):
            shutil.rmtree(PLACE / f"host{number}", ignore_errors=True)
    else:
        looks = int(state.read_text()) + 1
        if (PLACE / "preempt").exists():
            (PLACE / "preempt").unlink()
            looks = -1000
        state.write_text(str(looks))
        gone = "SUSPENDING" if looks == -1000 else "SUSPENDED"
        print(gone if looks < 0 else "ACTIVE" if looks >= 3 else "WAITING_FOR_RESOURCES")
    return 0


def scp(arguments: list[str]) -> int:
    for number in range(HOSTS):
        shutil.copy(arguments[4], PLACE / f"host{number}")
    return 0


def ssh(arguments: list[str]) -> int:
    script = next(a for a in arguments if a.startswith("--command=")).removeprefix("--command=")
    worker = next(a for a in arguments if a.startswith("--worker=")).removeprefix("--worker=")
    codes = []
    for number in range(HOSTS):
        if worker in ("all", str(number)):
            home = PLACE / f"host{number}"
            own = os.environ | {"HOME": str(home), "HOST": str(number)}
            codes.append(subprocess.run(["bash", "-c", script], env=own, cwd=home).returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
