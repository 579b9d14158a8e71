"""Find runsc, and install it from Debian's backports where it is missing."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess

from sandbox import records

PACKAGE = "runsc"
SOURCE_FILE = "spade-jax-backports.list"


def find_runsc() -> str | None:
    """The operator's RUNSC_PATH, else runsc on the PATH, else None."""
    return os.environ.get("RUNSC_PATH") or shutil.which("runsc")


def missing_message(path: str | None) -> str:
    """Say that runsc is missing and what to do about it."""
    what = f"runsc is not executable at {path}" if path else "runsc (gVisor) is not installed"
    return (
        f"{what}, so untrusted programs cannot be contained. As root on Debian, run "
        "`python -m sandbox install`, which installs it from Debian's backports; elsewhere put a "
        "build of 2023 or later on the PATH or name it with RUNSC_PATH. The tier `subprocess` works "
        "without it but is no security boundary; it must be asked for and is never chosen silently."
    )


def ensure_runsc() -> str:
    """Find runsc or install it; give its path.

    Raises:
      records.SandboxUnavailable: it is missing and cannot be installed here; the message says why.
    """
    path = find_runsc()
    if path and os.access(path, os.X_OK):
        return path
    if path:
        raise records.SandboxUnavailable(missing_message(path))
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise records.SandboxUnavailable(missing_message(None))
    release, mirror = debian_source()
    entry = pathlib.Path("/etc/apt/sources.list.d") / SOURCE_FILE
    entry.write_text(f"deb {mirror} {release}-backports main\n")
    commands = (
        ["apt-get", "update"],
        ["apt-get", "install", "-y", "-t", f"{release}-backports", PACKAGE],
    )
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            entry.unlink(missing_ok=True)
            raise records.SandboxUnavailable(
                f"`{' '.join(command)}` failed: {done.stderr.strip()[-500:]!r}. The apt mirror of "
                f"this machine ({mirror}) may lack {release}-backports; use a mirror that has it, or "
                f"install runsc by hand. {missing_message(None)}"
            )
    path = find_runsc()
    if path is None:
        raise records.SandboxUnavailable(
            f"apt-get installed {PACKAGE}, yet {missing_message(None)}"
        )
    return path


def debian_source() -> tuple[str, str]:
    """The release name and the mirror that this machine's apt already uses for it.

    Raises:
      records.SandboxUnavailable: no Debian release or no source for it is configured.
    """
    text = pathlib.Path("/etc/os-release").read_text()
    found = re.search(r"^VERSION_CODENAME=\"?(\w+)", text, re.M)
    if found is None:
        raise records.SandboxUnavailable(
            f"/etc/os-release names no release. {missing_message(None)}"
        )
    release = found.group(1)
    folder = pathlib.Path("/etc/apt")
    files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    for file in files:
        if file.is_file():
            mirror = mirror_in(file.read_text(errors="replace"), release)
            if mirror:
                return release, mirror
    raise records.SandboxUnavailable(
        f"no apt source of this machine serves {release}, so {release}-backports cannot be found. "
        f"{missing_message(None)}"
    )


def mirror_in(text: str, release: str) -> str | None:
    """Find the mirror of a release in an apt source file, in one-line or deb822 form."""
    line = re.search(rf"^deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+{release}\s", text, re.M)
    if line:
        return line.group(1)
    for block in text.split("\n\n"):
        suites = re.search(r"^Suites:(.*)$", block, re.M)
        mirror = re.search(r"^URIs:\s*(\S+)", block, re.M)
        if suites and mirror and release in suites.group(1).split():
            return mirror.group(1)
    return None
