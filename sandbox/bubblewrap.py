"""The tier `bubblewrap`: boxes in namespaces of the host's kernel, without a kernel of their own.

Everything else is as in gVisor: the same root, the same dispatcher and templates, a clone with new
namespaces, a user, limits and a system-call filter for each program. A fault of the host's kernel
is a way out, so it must be asked for.
"""

from __future__ import annotations

import os
import shutil

from sandbox import bundle, records

WARNING = (
    "sandbox: WARNING: tier=bubblewrap runs untrusted programs on the kernel of this host, in its "
    "namespaces. A fault of that kernel is a way out. Use tier=gvisor for programs that a model "
    "wrote."
)


def find() -> str:
    """Find bubblewrap.

    Raises:
      records.SandboxUnavailable: it is missing, or this is not root.
    """
    path = shutil.which("bwrap")
    if path is None:
        raise records.SandboxUnavailable(
            "bubblewrap (bwrap) is not installed. On Debian run `apt-get install bubblewrap`, or "
            "use the tier gvisor."
        )
    if os.geteuid() != 0:
        raise records.SandboxUnavailable(
            f"the tier bubblewrap needs root, since each program gets a user id of its own; this "
            f"is user {os.geteuid()}. The tier gvisor works without root."
        )
    return path


def command(bwrap: str, root: bundle.Root, flags: list[str]) -> list[str]:
    """Write the command that starts a box."""
    command = [bwrap, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    command += ["--unshare-cgroup-try", "--die-with-parent", "--hostname", "box"]
    command += ["--ro-bind", str(root.path), "/"]
    for source, destination in root.binds:
        command += ["--ro-bind", source, destination]
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/dev/shm"]
    # Bound without devices, it cannot be opened: mapped, it is memory that stays when unmapped.
    command += ["--ro-bind", "/dev/zero", "/dev/zero"]
    command += ["--cap-drop", "ALL"]
    for name in (*bundle.CAPABILITIES, "CAP_NET_ADMIN"):
        command += ["--cap-add", name]
    command += ["--clearenv"]
    for setting in bundle.ENVIRONMENT:
        command += ["--setenv", *setting.split("=", 1)]
    return [*command, root.python, *flags, "/opt/guest/dispatcher.py", "bubblewrap"]
