"""TPU slices: `python -m launch.tpu_vm VERB... --name=N --size=v5e-16 --zone=Z [-- COMMAND]`.

    create     ask for the slice (a queued resource)      wait     until it is there
    copy       this checkout, as git has it, to all hosts setup    packages and runsc on all hosts
    start      the same COMMAND on all hosts              status   of the slice and of the command
    follow     the log of the first host                  stop     ask the command to save and end
    keep       all of it, and again after a pre-emption, until COMMAND has ended
    delete     the slice

Every command is printed before it is run; with --dry_run it is only printed, scripts included.
"""

from __future__ import annotations

import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

from absl import app, flags

from launch import tpu_commands as commands

VERBS = (
    *("create", "wait", "copy", "setup", "start", "status"),
    *("follow", "stop", "keep", "delete"),
)
ROOT = pathlib.Path(__file__).resolve().parent.parent
ARCHIVE = "spade_jax.tar.gz"
GONE = ("SUSPENDING", "SUSPENDED", "FAILED", "DELETING", "ABSENT")
GOING = ("SUSPENDING", "DELETING")  # not to be touched until it has ended
PREEMPTED_CODE = "75"  # spade_jax.preemption.EXIT_CODE, without loading JAX here
MISSING_CODE = "76"  # spade_jax.hosts.MISSING: ended because another host did; its code decides
ABORTED_CODE = "134"  # JAX ends the others so when the first host is gone

_NAME = flags.DEFINE_string("name", None, "Name of the queued resource and of its node.")
_SIZE = flags.DEFINE_string("size", None, "Generation and size, as v5e-16 or v5p-128.")
_ZONE = flags.DEFINE_string("zone", None, "Zone, as us-central1-a.")
_PROJECT = flags.DEFINE_string("project", "", "Project; gcloud's own by default.")
_PROVISION = flags.DEFINE_enum(
    "provision", "spot", ["spot", "reserved", "on_demand"], "What kind of capacity."
)
_RUNTIME = flags.DEFINE_string("runtime", "", "TPU software version; by generation by default.")
_NETWORK = flags.DEFINE_string("network", "", "Network.")
_SUBNETWORK = flags.DEFINE_string("subnetwork", "", "Subnetwork.")
_ACCOUNT = flags.DEFINE_string("service_account", "", "Service account: it must reach the bucket.")
_INTERNAL = flags.DEFINE_bool("internal_ips", False, "No external addresses.")
_VALID = flags.DEFINE_string("valid_until", "", "Give up waiting after this long, as 6h.")
_SETUP = flags.DEFINE_string("setup_script", "", "Own script in place of the one printed.")
_POLL = flags.DEFINE_float("poll_seconds", 30.0, "Seconds between looks.", lower_bound=0.0)
_TIMES = flags.DEFINE_integer("restarts", 100, "Most restarts of `keep`.", lower_bound=0)
_DRY = flags.DEFINE_bool("dry_run", False, "Print commands and scripts, and run none.")


class Failed(Exception):
    """A command did not do what it should; the message says which and why."""


def main(argv: list[str]) -> None:
    """Do what the verbs say, in their order."""
    verbs = [word for word in argv[1:] if word in VERBS]
    command = argv[1 + len(verbs) :]
    if not verbs or argv[1 : 1 + len(verbs)] != verbs:
        raise app.UsageError(f"Name what to do: {', '.join(VERBS)}. COMMAND stands after --.")
    try:
        tpu = commands.Slice(
            name=_NAME.value,
            size=_SIZE.value,
            zone=_ZONE.value,
            project=_PROJECT.value,
            provision=_PROVISION.value,
            runtime=_RUNTIME.value,
            network=_NETWORK.value,
            subnetwork=_SUBNETWORK.value,
            service_account=_ACCOUNT.value,
            internal_ips=_INTERNAL.value,
            valid_until=_VALID.value,
        )
        check_command(verbs, command, tpu)
        print(f"# {tpu.describe()}", flush=True)
        host = Host(tpu, command)
        for verb in verbs:
            getattr(host, verb)()
    except (Failed, ValueError) as error:
        print(f"\n{error}", file=sys.stderr)
        sys.exit(1)


def check_command(verbs: list[str], command: list[str], tpu: commands.Slice) -> None:
    """Refuse a command whose work would be lost with the machines.

    Raises:
      ValueError: no command where one is needed, a spot slice with a local work directory, or
        trainers on several hosts that would not know of each other.
    """
    if {"start", "keep"} & set(verbs) and not command:
        raise ValueError(
            "start and keep need the command of the hosts after --, as `-- .venv/bin/python -m "
            "launch.train --config=FILE --workdir=gs://BUCKET/RUN`."
        )
    line = " ".join(command)
    if tpu.hosts > 1 and "launch.train" in line and "--coordinator" not in line:
        raise ValueError(
            f"{tpu.size} has {tpu.hosts} hosts, and without --coordinator=auto each would train "
            "alone in the same work directory. Add it to the command."
        )
    places = re.findall(r"--workdir[= ](\S+)", line)
    if tpu.provision == "spot" and any("://" not in place for place in places):
        raise ValueError(
            f"--workdir={places[0]} lies on the disk of a spot slice, which is lost with it. Name "
            "a bucket (gs://...), or --provision=reserved or on_demand."
        )


class Host:
    """Runs the verbs on one slice; prints every command before it is run."""

    def __init__(self, tpu: commands.Slice, command: list[str]):
        self.tpu, self.command = tpu, command

    def create(self) -> None:
        """Ask for the slice."""
        self._run(commands.create(self.tpu))

    def wait(self) -> None:
        """Look until the slice is there.

        Raises:
          Failed: it will not come.
        """
        while True:
            state = self._state()
            if state == "ACTIVE" or _DRY.value:
                return
            if state in GONE:
                raise Failed(f"{self.tpu.name} is {state}; `delete` it, then `create` it again.")
            time.sleep(_POLL.value)

    def copy(self) -> None:
        """Copy what git has at HEAD; changes that are not committed stay here, and are told."""
        with tempfile.TemporaryDirectory() as folder:
            archive = f"{folder}/{ARCHIVE}"
            git = ["git", "-C", str(ROOT)]
            if not _DRY.value:
                changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True)
                if changed.stdout:
                    print("# changes that are not committed are not copied", flush=True)
            self._run([*git, "archive", "--format=tar.gz", f"--output={archive}", "HEAD"])
            self._run(commands.copy(self.tpu, archive))

    def setup(self) -> None:
        """Run the set-up script on every host, or the one that --setup_script names."""
        script = commands.setup_script(ARCHIVE)
        if _SETUP.value:
            script = pathlib.Path(_SETUP.value).read_text(encoding="utf-8")
        self._run(commands.on_hosts(self.tpu, script))

    def start(self) -> None:
        """Start the run's command on every host."""
        self._run(commands.on_hosts(self.tpu, commands.start_script(self.command)))

    def status(self) -> None:
        """Print the state of the slice and of the run on each host."""
        print(f"slice: {self._state()}")
        print(f"hosts: {', '.join(self._hosts()) or 'none answers'}")

    def follow(self) -> None:
        """Print the log of the first host until interrupted."""
        line = commands.on_hosts(self.tpu, commands.follow_script(), worker="0")
        self._tell(line)
        if not _DRY.value:
            subprocess.run(line, check=False)

    def stop(self) -> None:
        """Stop the run on every host."""
        self._run(commands.on_hosts(self.tpu, commands.stop_script()))

    def delete(self) -> None:
        """Give the slice back."""
        self._run(commands.delete(self.tpu))

    def keep(self) -> None:
        """See the command to its end on all hosts, through pre-emptions.

        Raises:
          Failed: the command failed by itself, or there were too many restarts.
        """
        for _ in range(_TIMES.value + 1):
            if _DRY.value or self._state() != "ACTIVE":
                self._renew()
            self.start()
            ended = self._until_ended()
            if _DRY.value:
                return
            if ended is not None and set(ended) == {"0"}:
                print("# every host has ended with 0")
                return
            own = {"0", PREEMPTED_CODE, MISSING_CODE, "lost", "absent"}
            if ended is not None and {"lost", "absent"} & set(ended):
                own.add(ABORTED_CODE)
            if ended is not None and not set(ended) <= own:
                raise Failed(
                    f"exit codes of the hosts: {', '.join(ended)}. Read the log with `follow`; "
                    "nothing is deleted."
                )
            print("# pre-empted; going on from the newest checkpoint", flush=True)
        raise Failed(f"{_TIMES.value} restarts are used up; raise --restarts to go on.")

    def _renew(self) -> None:
        """Delete what is left of a slice, ask for it again and prepare its hosts."""
        state = self._state()
        while state in GOING:
            time.sleep(_POLL.value)
            state = self._state()
        if state in GONE and state != "ABSENT":
            self.delete()
            state = "ABSENT"
        if _DRY.value or state == "ABSENT":
            self.create()
        self.wait()
        self.copy()
        self.setup()

    def _until_ended(self) -> list[str] | None:
        """Wait until no host runs; gives their codes, None where the slice is gone."""
        while True:
            if self._state() != "ACTIVE":
                return None
            hosts = self._hosts()
            if _DRY.value or (len(hosts) == self.tpu.hosts and "running" not in hosts):
                return hosts
            broken = [host for host in hosts if host not in ("running", "0")]
            if broken:
                print(f"# hosts: {', '.join(hosts)}", flush=True)
                self.stop()  # one host of a slice is of no use without the others
            time.sleep(_POLL.value)

    def _state(self) -> str:
        done = self._run(commands.describe(self.tpu), may_fail=True)
        if done is None:  # a dry run
            return "ACTIVE"
        if done.returncode != 0:
            if "NOT_FOUND" in done.stderr or "not found" in done.stderr.lower():
                return "ABSENT"
            raise Failed(f"gcloud could not tell the state of {self.tpu.name}: {done.stderr}")
        return done.stdout.strip()

    def _hosts(self) -> list[str]:
        """States of the command on the hosts that answer."""
        done = self._run(commands.on_hosts(self.tpu, commands.status_script()), may_fail=True)
        if done is None:
            return []
        found = re.findall(r"state=(\w+)", done.stdout)
        if len(found) < self.tpu.hosts:
            last = (done.stderr.strip().splitlines() or ["gcloud gives no reason"])[-1]
            print(f"# {len(found)} of {self.tpu.hosts} hosts answer: {last}", flush=True)
        return found

    def _run(self, line: list[str], may_fail: bool = False):
        """Print a command and run it; None in a dry run.

        Raises:
          Failed: it ended with another code than 0 and may not.
        """
        self._tell(line)
        if _DRY.value:
            return None
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if not may_fail:
            print(done.stdout, end="", flush=True)
            if done.returncode != 0:
                raise Failed(f"{shlex.join(line[:7])} ended with {done.returncode}: {done.stderr}")
        return done

    def _tell(self, line: list[str]) -> None:
        print(f"$ {shlex.join(line)}", flush=True)


if __name__ == "__main__":
    flags.mark_flags_as_required(["name", "size", "zone"])
    sys.exit(app.run(main))
