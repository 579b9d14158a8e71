"""Get ready to start boxes: find runsc, choose the platform, make the run directory, sweep old ones.

Every crew has one run directory, named by its process. A dead run's directory is recognised by its
owner's pid and start time, and only such directories are swept.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable

from sandbox import bundle, install, platforms, records

STATE_FOLDER = pathlib.Path(tempfile.gettempdir()) / "spade_jax_sandbox"
CACHE_FOLDER = pathlib.Path("~/.cache/spade_jax_sandbox").expanduser()
LAUNCHER = pathlib.Path(__file__).parent / "launcher.py"
WARNING = (
    "sandbox: WARNING: tier=subprocess runs untrusted programs as plain processes of this user. "
    "It is no security boundary: they can read and change what this user can. "
    "Use tier=gvisor for programs that a model wrote."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ground:
    """What boxes are started from."""

    tier: str  # as it stands in outcomes
    folder: pathlib.Path  # the run directory
    runsc: str
    platform: str
    root: bundle.Root | None
    packages: tuple[str, ...]

    def launcher(self, slot: int) -> Callable[[int], subprocess.Popen]:
        """Give the function that starts generation g of a slot."""
        return lambda generation: self.launch(f"box{slot}-{generation}")

    def launch(self, name: str) -> subprocess.Popen:
        if self.root is None:
            command = subprocess_command(self.packages)
        else:
            command = self.runsc_command(name)
        parent = [sys.executable, "-I", "-S", "-B", str(LAUNCHER), str(os.getpid())]
        with open(self.folder / f"{name}.log", "wb") as log:
            return subprocess.Popen(
                parent + command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=plain_environment(),
                start_new_session=True,  # Ctrl-C reaches the trainer, which closes its boxes
            )

    def runsc_command(self, name: str) -> list[str]:
        home = self.folder / name
        shutil.rmtree(home, ignore_errors=True)
        bundle.write_bundle(home, self.root, ["-s", "-S", "-P", "-B", "-X", "utf8", *GUEST_COMMAND])
        flags = [f"--root={self.folder}/state", f"--platform={self.platform}", "--network=none"]
        flags += ["--ignore-cgroups", "--host-uds=none"]
        flags += [f"--log={self.folder}/{name}.log", "--alsologtostderr=false"]
        if os.geteuid() != 0:
            flags.append("--rootless")
        return [self.runsc, *flags, "run", f"--bundle={home}", f"{self.folder.name}-{name}"]

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


GUEST_COMMAND = ["/opt/guest/dispatcher.py", "gvisor"]


def subprocess_command(packages: tuple[str, ...]) -> list[str]:
    """The dispatcher as a plain process of this host, with the folders of the packages on its path."""
    import importlib.util

    paths = []
    for package in packages:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            parent = os.path.dirname(spec.submodule_search_locations[0])
            paths += [f"path={parent}"] if f"path={parent}" not in paths else []
    guest = str(bundle.GUEST / "dispatcher.py")
    return [base_python(), "-s", "-S", "-P", "-B", "-X", "utf8", guest, "subprocess", *paths]


def base_python() -> str:
    """The interpreter behind a virtual environment."""
    return getattr(sys, "_base_executable", None) or sys.executable


def plain_environment() -> dict[str, str]:
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}


def prepare(config) -> Ground:
    """Make everything a crew needs before its boxes start.

    Raises:
      records.SandboxUnavailable: gVisor was asked for and runsc cannot be found or started.
    """
    sweep(config.state_folder)
    if config.tier == "subprocess":
        print(WARNING, file=sys.stderr)
        folder = make_folder(config.state_folder)
        return Ground(
            tier="subprocess",
            folder=folder,
            runsc="",
            platform="",
            root=None,
            packages=config.packages,
        )
    runsc = config.runsc or install.find_runsc()
    if runsc is None or not os.access(runsc, os.X_OK):
        raise records.SandboxUnavailable(install.missing_message(runsc))
    folder = make_folder(config.state_folder)
    root = bundle.make_root(folder / "root", config.packages)

    def ground(platform: str) -> Ground:
        return Ground(
            tier=f"gvisor-{platform}",
            folder=folder,
            runsc=runsc,
            platform=platform,
            root=root,
            packages=config.packages,
        )

    if config.platform != "auto":
        return ground(config.platform)
    try:
        return ground(platforms.choose(runsc, config.cache_folder, ground))
    except records.SandboxUnavailable:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def make_folder(state_folder: pathlib.Path) -> pathlib.Path:
    """Make the run directory of this process and write down who owns it."""
    pid = os.getpid()
    folder = state_folder / f"run-{pid}-{uuid.uuid4().hex[:8]}"
    folder.mkdir(parents=True, mode=0o700)
    owner = {"pid": pid, "started": start_time(pid)}
    (folder / "owner.json").write_text(json.dumps(owner))
    return folder


def sweep(state_folder: pathlib.Path) -> list[pathlib.Path]:
    """Remove what crews of dead processes left behind, and nothing else."""
    swept = []
    for folder in sorted(state_folder.glob("run-*")):
        try:
            owner = json.loads((folder / "owner.json").read_text())
            dead = start_time(int(owner["pid"])) != owner["started"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # half made by a living crew, or not ours
        if dead:
            kill_boxes(folder)
            shutil.rmtree(folder, ignore_errors=True)
            swept.append(folder)
    return swept


def kill_boxes(folder: pathlib.Path) -> None:
    """Kill the runsc processes whose command line names this run directory."""
    needle = f"--root={folder}/state".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as command:
                if needle in command.read().split(b"\0"):
                    os.kill(int(entry), 9)
        except OSError:
            continue


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[19])
    except OSError:
        return None


def broken_message(tier: str, reason: str, ground: Ground) -> str:
    """Say why boxes do not start, with the last words of one."""
    words = ""
    for log in sorted(ground.folder.glob("box*.log")):
        words = log.read_text(errors="replace")[-600:].strip() or words
    text = f"No {tier} box can be started: {reason}."
    if "mounts" in reason:
        text += (
            " This runsc does not isolate mounts (builds before 2023 do not); install the one from "
            "Debian's backports, or name another with RUNSC_PATH."
        )
    text += f" Last words of a box: {words!r}." if words else ""
    return (
        f"{text} Run `python -m sandbox doctor` for a diagnosis. The tier `subprocess` works without "
        "gVisor but is no security boundary; it must be asked for."
    )
