"""Get ready to start boxes: find runsc, choose the platform, make the run directory, sweep old
ones.

Every crew has one run directory, named by its process. A dead run's directory is recognised by its
owner's pid and start time, and only such directories are swept.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable

from sandbox import bubblewrap, budget, bundle, install, janitor, platforms, records, strict

STATE_FOLDER = pathlib.Path(tempfile.gettempdir()) / f"spade_jax_sandbox-{os.geteuid()}"
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
    preload: tuple[str, ...]
    budget: budget.Budget
    warden: subprocess.Popen  # removes the run directory when this process is gone
    image: pathlib.Path | None = None  # a checkpoint from which boxes are restored
    bwrap: str = ""

    def on(self, platform: str) -> Ground:
        """The same ground with gVisor's platform settled."""
        return dataclasses.replace(self, platform=platform, tier=f"{self.tier}-{platform}")

    def launcher(self, slot: int) -> Callable[[int], subprocess.Popen]:
        """Give the function that starts generation g of a slot."""
        return lambda generation: self.launch(f"box{slot}-{generation}")

    def tidier(self, slot: int) -> Callable[[int], None]:
        """Give the function that removes what an ended generation of a slot leaves."""
        return lambda generation: self.tidy(f"box{slot}-{generation}")

    def tidy(self, name: str) -> None:
        """Remove bundle, log and cgroups of a box; what is still busy is left to the janitor."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.folder / f"{name}.log").unlink(missing_ok=True)
        self.budget.leave(name)

    def launch(self, name: str) -> subprocess.Popen:
        """Start a box: a restored one where there is an image."""
        if self.root is None:
            return self._spawn(name, subprocess_command(self.packages, self.preload, self.folder))
        if self.bwrap:
            command = bubblewrap.command(self.bwrap, self.root, GUEST_FLAGS)
            return self._spawn(name, [*command, *preload_options(self.preload)])
        if self.image is None:
            return self._spawn(name, self.runsc_command(name, "run"))
        return self._spawn(name, self.runsc_command(name, "restore", f"--image-path={self.image}"))

    def _spawn(self, name: str, command: list[str]) -> subprocess.Popen:
        parent = [sys.executable, "-I", "-S", "-B", str(LAUNCHER), str(os.getpid())]
        parent += [*self.budget.join(name), "--"]
        with open(self.folder / f"{name}.log", "wb") as log:
            return subprocess.Popen(
                parent + command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=plain_environment(),
                start_new_session=True,  # Ctrl-C reaches the trainer, which closes its boxes
            )

    def runsc_command(self, name: str, do: str, *options: str) -> list[str]:
        """Write a box's bundle, and give the command that runs or restores it."""
        home = self.folder / name
        shutil.rmtree(home, ignore_errors=True)
        guest = [*GUEST_FLAGS, GUEST, "gvisor", *preload_options(self.preload)]
        bundle.write_bundle(home, self.root, guest)
        return [*self.runsc_flags(name), do, *options, f"--bundle={home}", self.box_name(name)]

    def runsc_flags(self, name: str) -> list[str]:
        """Give runsc and its flags for a box."""
        flags = [f"--root={self.folder}/state", f"--platform={self.platform}", "--network=none"]
        flags += ["--ignore-cgroups", "--host-uds=none"]
        flags += [f"--log={self.folder}/{name}.log", "--alsologtostderr=false"]
        if os.geteuid() != 0:
            flags.append("--rootless")
        return [self.runsc, *flags]

    def box_name(self, name: str) -> str:
        """Name a box, unlike those of other crews."""
        return f"{self.folder.name}-{name}"

    def checkpointed(self) -> Ground:
        """The same ground with an image to restore boxes from, where that can be had."""
        if os.geteuid() != 0:
            return dataclasses.replace(self, tier=f"{self.tier}-cold")
        image = self.folder / "checkpoint"
        command = [*self.runsc_flags("image"), "checkpoint", f"--image-path={image}"]
        command += ["--compression=none", self.box_name("image")]
        made = strict.make_image(self.launch("image"), command, image)
        return dataclasses.replace(self, image=made)

    def remove(self) -> None:
        """Remove the run directory and whatever still runs from it."""
        self.warden.stdin.close()
        self.warden.wait()


GUEST = "/opt/guest/dispatcher.py"
GUEST_FLAGS = ["-s", "-S", "-P", "-B", "-X", "utf8"]


def subprocess_command(
    packages: tuple[str, ...], preload: tuple[str, ...], folder: pathlib.Path
) -> list[str]:
    """The dispatcher as a plain process of this host, with the packages' folders on its path."""
    paths = [f"scratch={folder}/scratch"]
    for package in packages:
        home = bundle.package_home(package)
        if home is not None and f"path={home.parent}" not in paths:
            paths.append(f"path={home.parent}")
    guest = str(bundle.GUEST / "dispatcher.py")
    options = [*paths, *preload_options(preload)]
    return [base_python(), *GUEST_FLAGS, guest, "subprocess", *options]


def preload_options(preload: tuple[str, ...]) -> list[str]:
    """Write the guest's options for modules that its templates import beforehand."""
    return [f"preload={name}" for name in preload]


def base_python() -> str:
    """The interpreter behind a virtual environment."""
    return getattr(sys, "_base_executable", None) or sys.executable


def plain_environment() -> dict[str, str]:
    """Give the environment variables of processes outside of gVisor."""
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}


def prepare(config) -> Ground:
    """Make everything a crew needs before its boxes start.

    Raises:
      records.SandboxUnavailable: gVisor was asked for and runsc cannot be found or started.
    """
    janitor.sweep(config.state_folder)
    if config.tier == "subprocess":
        print(WARNING, file=sys.stderr)
        return make_ground(config, "subprocess")
    if config.tier == "bubblewrap":
        print(bubblewrap.WARNING, file=sys.stderr)
        return on_bubblewrap(make_ground(config, "bubblewrap", bwrap=bubblewrap.find()), config)
    runsc = config.runsc or install.find_runsc()
    if runsc is None or not (os.path.isfile(runsc) and os.access(runsc, os.X_OK)):
        raise records.SandboxUnavailable(install.missing_message(runsc))
    return on_gvisor(make_ground(config, config.tier, runsc=runsc), config)


def on_bubblewrap(ground: Ground, config) -> Ground:
    """Make the root of the boxes."""
    try:
        root = bundle.make_root(ground.folder / "root", config.packages)
        return dataclasses.replace(ground, root=root)
    except BaseException:
        ground.remove()
        raise


def on_gvisor(ground: Ground, config) -> Ground:
    """Make the root of the boxes, settle the platform, and checkpoint a box where asked."""
    try:
        root = bundle.make_root(ground.folder / "root", config.packages)
        ground = dataclasses.replace(ground, root=root)
        platform = config.platform
        if platform == "auto":
            platform = platforms.choose(ground.runsc, config.cache_folder, ground.on)
        ground = ground.on(platform)
        return ground.checkpointed() if config.tier == "gvisor_strict" else ground
    except records.SandboxUnavailable:
        ground.remove()
        raise
    except RuntimeError as error:
        message = broken_message(ground.tier, str(error), ground)
        ground.remove()
        raise records.SandboxUnavailable(message) from None
    except BaseException:
        ground.remove()
        raise


def make_ground(config, tier: str, *, runsc: str = "", bwrap: str = "") -> Ground:
    """Make the run directory and start its warden."""
    folder = make_folder(config.state_folder)
    count = config.boxes or len(os.sched_getaffinity(0))
    command = [sys.executable, "-I", "-S", "-B", janitor.__file__, str(os.getpid()), str(folder)]
    return Ground(
        tier=tier,
        folder=folder,
        runsc=runsc,
        platform="",
        bwrap=bwrap,
        root=None,
        packages=config.packages,
        preload=config.preload,
        budget=budget.make(folder, config.box_memory_bytes or budget.share_of_memory(count)),
        warden=subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=plain_environment(),
            start_new_session=True,
        ),
    )


def make_folder(state_folder: pathlib.Path) -> pathlib.Path:
    """Make the run directory of this crew and write down who owns it.

    Raises:
      records.SandboxUnavailable: the folder above it belongs to somebody else.
    """
    folder = state_folder / f"run-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    state_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if state_folder.stat().st_uid != os.geteuid():
        raise records.SandboxUnavailable(
            f"crew.state_folder={state_folder} belongs to user {state_folder.stat().st_uid}, not "
            f"to {os.geteuid()}; name another, since its owner could change what boxes see."
        )
    folder.mkdir(mode=0o700)
    (folder / "scratch").mkdir()
    janitor.write_owner(folder)
    return folder


def broken_message(tier: str, reason: str, ground: Ground) -> str:
    """Say why boxes do not start, with the last words of one."""
    words = ""
    for log in sorted(ground.folder.glob("box*.log")):
        words = log.read_text(errors="replace")[-600:].strip() or words
    text = f"No {tier} box can be started: {reason}."
    text += install.mounts_advice(reason)
    text += f" Last words of a box: {words!r}." if words else ""
    return (
        f"{text} Run `python -m sandbox doctor` for a diagnosis. The tier `subprocess` works "
        "without gVisor but is no security boundary; it must be asked for."
    )
