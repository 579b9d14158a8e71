"""The gcloud commands and host scripts of a TPU slice, as text; nothing is run here.

Source: gcloud reference, `compute tpus queued-resources` and `compute tpus tpu-vm`; TPU software
versions; gVisor's installation page.
"""

from __future__ import annotations

import dataclasses
import re
import shlex

RUNTIMES = {  # generation -> TPU software version
    "v2": "tpu-ubuntu2204-base",
    "v3": "tpu-ubuntu2204-base",
    "v4": "tpu-ubuntu2204-base",
    "v5e": "v2-alpha-tpuv5-lite",
    "v5p": "v2-alpha-tpuv5",
    "v6e": "v2-alpha-tpuv6e",
}
CORES_PER_CHIP = {"v2": 2, "v3": 2, "v4": 2, "v5p": 2, "v5e": 1, "v6e": 1}  # what a size counts
CHIPS_PER_HOST = 4  # of a slice with several hosts
SINGLE_HOST_CHIPS = {"v5e": 8, "v6e": 8}  # most chips that one host has; 4 elsewhere
FOLDER = "spade_jax"  # on every host, in the home directory
RUNSC = "https://storage.googleapis.com/gvisor/releases/release/latest"
SETUP = """\
set -euo pipefail
mkdir -p "$HOME/{folder}"
tar -xzf "$HOME/{archive}" -C "$HOME/{folder}"
cd "$HOME/{folder}"
if ! [ -x .venv/bin/python ]; then
  python3 -m pip install --user --quiet uv
  python3 -m uv venv --python 3.11 --seed .venv
fi
.venv/bin/python -m pip install --quiet -e '.[tpu]'
if ! command -v runsc >/dev/null; then
  cd "$(mktemp -d)"
  url={runsc}/$(uname -m)
  curl -fsSLO "$url/runsc" && curl -fsSLO "$url/runsc.sha512"
  sha512sum -c runsc.sha512
  sudo install -m 755 runsc /usr/local/bin/runsc
  cd "$HOME/{folder}"
fi
.venv/bin/python -m sandbox doctor
"""
START = """\
cd "$HOME/{folder}"
if [ -e run.pid ] && ! [ -e run.exit ] && kill -0 "$(cat run.pid)" 2>/dev/null; then
  echo "already running as $(cat run.pid)"
  exit 0
fi
rm -f run.exit
nohup bash -c {inner} >/dev/null 2>&1 </dev/null &
echo $! >run.pid
echo "started as $!"
"""
INNER = (
    "{command} >>run.log 2>&1 & echo $! >child.pid; wait $!; echo $? >run.part; "
    "mv run.part run.exit"
)
STATUS = """\
cd "$HOME/{folder}" 2>/dev/null || {{ echo "state=absent"; exit 0; }}
if [ -e run.exit ]; then echo "state=$(cat run.exit)"
elif [ -e run.pid ] && kill -0 "$(cat run.pid)" 2>/dev/null; then echo "state=running"
else echo "state=lost"
fi
"""
FOLLOW = 'tail -n 200 -F "$HOME/{folder}/run.log"'
STOP = """\
cd "$HOME/{folder}"
if [ -e child.pid ] && ! [ -e run.exit ] && kill -TERM "$(cat child.pid)" 2>/dev/null; then
  echo "SIGTERM sent to $(cat child.pid)"
else
  echo "nothing runs"
fi
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slice:
    """A TPU slice as it is asked for."""

    name: str
    size: str  # such as v5e-16, v5p-128
    zone: str
    project: str = ""
    provision: str = "spot"  # spot, reserved, or on_demand
    runtime: str = ""  # empty: that of the generation
    network: str = ""
    subnetwork: str = ""
    service_account: str = ""
    internal_ips: bool = False
    valid_until: str = ""  # duration after which a request that waits expires, such as 6h

    def __post_init__(self):
        if not re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", self.name):
            raise ValueError(
                f"--name={self.name!r}: lower-case letters, digits and hyphens, a letter first."
            )
        if self.generation not in RUNTIMES or self.cores < 1 or self.chips < 1:
            raise ValueError(
                f"--size={self.size!r}: GENERATION-NUMBER with one of {', '.join(RUNTIMES)}, as "
                "v5e-16 (16 chips) or v5p-128 (128 cores, 64 chips)."
            )
        if self.provision not in ("spot", "reserved", "on_demand"):
            raise ValueError(f"--provision={self.provision!r}: spot, reserved or on_demand.")

    @property
    def generation(self) -> str:
        """Name the generation, as in v5e."""
        return self.size.partition("-")[0].replace("v5litepod", "v5e")

    @property
    def cores(self) -> int:
        """Read the number behind the generation; 0 where there is none."""
        number = self.size.partition("-")[2]
        return int(number) if number.isdigit() else 0

    @property
    def chips(self) -> int:
        """Count the chips."""
        return self.cores // CORES_PER_CHIP[self.generation]

    @property
    def hosts(self) -> int:
        """Count the hosts."""
        single = SINGLE_HOST_CHIPS.get(self.generation, CHIPS_PER_HOST)
        return 1 if self.chips <= single else -(-self.chips // CHIPS_PER_HOST)

    @property
    def accelerator_type(self) -> str:
        """Name the slice as gcloud does, as in v5litepod-16."""
        family = "v5litepod" if self.generation == "v5e" else self.generation
        return f"{family}-{self.cores}"

    def describe(self) -> str:
        """Say what it is in one line."""
        return (
            f"{self.name}: {self.accelerator_type}, {self.chips} chips, {self.hosts} "
            f"host{'s' if self.hosts > 1 else ''}, {self.provision}, {self.zone}"
        )


def create(tpu: Slice) -> list[str]:
    """Ask for the slice."""
    optional = {
        "network": tpu.network,
        "subnetwork": tpu.subnetwork,
        "service-account": tpu.service_account,
        "valid-until-duration": tpu.valid_until,
    }
    return [
        *_queued("create", tpu),
        f"--node-id={tpu.name}",
        f"--accelerator-type={tpu.accelerator_type}",
        f"--runtime-version={tpu.runtime or RUNTIMES[tpu.generation]}",
        *(["--spot"] if tpu.provision == "spot" else []),
        *(["--reserved"] if tpu.provision == "reserved" else []),
        *(["--internal-ips"] if tpu.internal_ips else []),
        *(f"--{name}={value}" for name, value in optional.items() if value),
    ]


def describe(tpu: Slice) -> list[str]:
    """Ask for the state of the request."""
    return [*_queued("describe", tpu), "--format=value(state.state)"]


def delete(tpu: Slice) -> list[str]:
    """Delete the request and its nodes."""
    return [*_queued("delete", tpu), "--force", "--quiet"]


def copy(tpu: Slice, archive: str) -> list[str]:
    """Copy a file to the home directory of every host."""
    command = ["gcloud", "compute", "tpus", "tpu-vm", "scp", archive, f"{tpu.name}:"]
    return [*command, "--worker=all", *_place(tpu), *_inside(tpu)]


def on_hosts(tpu: Slice, script: str, worker: str = "all") -> list[str]:
    """Run a script on every host, or on one."""
    command = ["gcloud", "compute", "tpus", "tpu-vm", "ssh", tpu.name, f"--worker={worker}"]
    return [*command, *_place(tpu), *_inside(tpu), f"--command={script}"]


def setup_script(archive: str) -> str:
    """Unpack the code, make its virtual environment, install gVisor, look whether it works."""
    return SETUP.format(folder=FOLDER, archive=archive, runsc=RUNSC)


def start_script(command: list[str]) -> str:
    """Start a command that outlives the connection, unless it runs already."""
    line = shlex.join(command)
    return START.format(folder=FOLDER, inner=shlex.quote(INNER.format(command=line)))


def status_script() -> str:
    """Print state=running, an exit code, lost (the host was restarted) or absent."""
    return STATUS.format(folder=FOLDER)


def follow_script() -> str:
    """Print the log as it grows."""
    return FOLLOW.format(folder=FOLDER)


def stop_script() -> str:
    """Ask the command to save and end."""
    return STOP.format(folder=FOLDER)


def _queued(verb: str, tpu: Slice) -> list[str]:
    return ["gcloud", "compute", "tpus", "queued-resources", verb, tpu.name, *_place(tpu)]


def _place(tpu: Slice) -> list[str]:
    return [f"--zone={tpu.zone}", *([f"--project={tpu.project}"] if tpu.project else [])]


def _inside(tpu: Slice) -> list[str]:
    """Reach hosts that have no external address."""
    return ["--internal-ip"] if tpu.internal_ips else []
