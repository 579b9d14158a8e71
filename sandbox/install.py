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
        "build of 2023 or later on the PATH or name it with RUNSC_PATH. The tier `subprocess` "
        "works without it but is no security boundary; it must be asked for, and nothing falls "
        "back to it silently."
    )


def mounts_advice(reason: str) -> str:
    """What to do about a runsc whose self-test failed; nothing for other reasons."""
    if "mounts" not in reason:
        return ""
    return (
        " This runsc does not isolate mounts (builds before 2023 do not); install the one from "
        "Debian's backports, or name another with RUNSC_PATH."
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
    release = debian_release()
    entry = add_backports(release)
    commands = (
        ["apt-get", "update"],
        ["apt-get", "install", "-y", "-t", f"{release}-backports", PACKAGE],
    )
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            if entry:
                entry.unlink(missing_ok=True)
            raise records.SandboxUnavailable(
                f"`{' '.join(command)}` failed: {done.stderr.strip()[-500:]!r}. The apt mirror of "
                f"this machine may lack {release}-backports; use a mirror that has it, or install "
                f"runsc by hand. {missing_message(None)}"
            )
    path = find_runsc()
    if path is None:
        raise records.SandboxUnavailable(
            f"apt-get installed {PACKAGE}, yet {missing_message(None)}"
        )
    return path


def debian_release() -> str:
    """The code name of this Debian.

    Raises:
      records.SandboxUnavailable: this is no Debian release.
    """
    text = pathlib.Path("/etc/os-release").read_text()
    found = re.search(r"^VERSION_CODENAME=\"?(\w+)", text, re.M)
    if found is None or not re.search(r"^ID=\"?debian", text, re.M):
        raise records.SandboxUnavailable(f"this is not Debian. {missing_message(None)}")
    return found.group(1)


def add_backports(release: str) -> pathlib.Path | None:
    """Add a source entry for backports with the mirror of the release; None if there is one.

    Raises:
      records.SandboxUnavailable: no apt source serves the release.
    """
    folder = pathlib.Path("/etc/apt")
    files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    text = "\n\n".join(f.read_text(errors="replace") for f in files if f.is_file())
    if source_of(text, f"{release}-backports"):
        return None
    source = source_of(text, release)
    if source is None:
        raise records.SandboxUnavailable(
            f"no apt source of this machine serves {release}, so {release}-backports cannot be "
            f"found. {missing_message(None)}"
        )
    entry = folder / "sources.list.d" / SOURCE_FILE
    entry.write_text(f"deb {source} {release}-backports main\n")
    return entry


def source_of(text: str, suite: str) -> str | None:
    """Find the mirror of a suite in apt sources of either form, as `[options] mirror`."""
    line = re.search(rf"^deb\s+((?:\[[^\]]*\]\s+)?\S+)\s+{re.escape(suite)}\s", text, re.M)
    if line:
        return line.group(1)
    for block in re.split(r"\n\s*\n|\n(?=Types:)", text):
        fields = dict(re.findall(r"^(\w[\w-]*):[ \t]*(.*)$", block, re.M))
        if suite in fields.get("Suites", "").split() and fields.get("URIs"):
            key = fields.get("Signed-By", "").strip()
            signed = f"[signed-by={key}] " if key.startswith("/") else ""
            return signed + fields["URIs"].split()[0]
    return None
