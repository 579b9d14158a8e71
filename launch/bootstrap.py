"""Door for a bare machine: set everything up, then run one job. Standard library only.

    python3 launch/bootstrap.py quickstart [-- flags of launch.train]
    python3 launch/bootstrap.py tests [-- arguments of pytest]
    python3 launch/bootstrap.py setup

Makes the virtual environment .venv in the project's root, installs the package into it, installs
gVisor where that is missing, and becomes the job (`setup` ends there). What is done already is
skipped. A .venv that a killed run left half-made, that another Python made, or that is broken is
made anew; one that this script did not make is only added to.
"""

# Parses on any Python 3, so that an old one gets a message: no annotations of newer kinds.

import fcntl
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGAN_SECONDS = time.monotonic()
OLDEST = (3, 11)
STAMP = "bootstrap.json"  # in .venv: what is installed there
UNFINISHED = "bootstrap.unfinished"  # in .venv while a step changes it
UNSAFE_FLAG = "--config.sandbox.tier=subprocess"

TRAIN = "-m launch.train --config=experiments/quickstart.py --workdir=runs/quickstart"
JOBS = {  # name -> (extras of setup.py, arguments of the virtual environment's Python)
    "quickstart": ([], shlex.split(TRAIN)),
    "tests": (["fleet", "test"], shlex.split("-m pytest -q -n auto --dist=worksteal")),
    "setup": (["fleet", "test"], []),
}


class Stop(Exception):
    """A set-up that cannot go on; the text tells a person why and what to do."""


def main(arguments):
    """Set up, then replace this process by the job; return an exit code if that cannot be."""
    try:
        if sys.version_info < OLDEST:
            raise Stop(
                f"This is Python {_version()} ({sys.executable}); Python 3.11 or later is needed. "
                "Install one and start this script with it, for example: python3.11 "
                "launch/bootstrap.py tests"
            )
        job, rest = parse(arguments)
        extras, command = JOBS[job]
        with _Lock(ROOT) as lock:
            prepare_venv(ROOT, lock)
            install_package(ROOT, extras, lock)
            prepare_gvisor(ROOT, job, rest)
    except Stop as stop:
        print(f"\n{stop}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; the same command goes on from here.", file=sys.stderr)
        return 130
    if not command:
        return 0
    line = [str(ROOT / ".venv/bin/python"), *command, *rest]
    say("starting: .venv/bin/python " + " ".join(map(shlex.quote, line[1:])))
    os.chdir(ROOT)
    os.execv(line[0], line)


def parse(arguments):
    """Split the command line into the job's name and what is passed on to it."""
    job, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if job not in JOBS or rest and rest[0] != "--":
        raise Stop(
            f"cannot read the command line {' '.join(arguments)!r}. Give one of "
            f"{', '.join(JOBS)}, then -- and what is passed on, for example:\n"
            "  python3 launch/bootstrap.py quickstart -- --config.seed=1"
        )
    return job, rest[1:]


def prepare_venv(root, *held):
    """Make root/.venv, or make it anew where what stands there cannot be used.

    Args:
      held: file descriptors that the process which does it holds open, so that a second set-up
        waits for it even if this process is killed.
    Raises:
      Stop: it cannot be made, or stands there with another Python and is not ours.
    """
    venv = root / ".venv"
    state, why = inspect_venv(root)
    if state == "good":
        say(f"virtual environment .venv: found, Python {why}")
        return
    if state == "foreign":
        raise Stop(
            f"{venv} was not made by this script and has Python {why}, while this is Python "
            f"{_version()}. Start the script with that Python, or move {venv} away."
        )
    if state == "bad":
        say(f"virtual environment .venv: {why}; it is made anew")
        _remove(venv)
    _ensure_venv_module()
    say(f"virtual environment .venv: making it with Python {_version()}")
    try:
        venv.mkdir()
        (venv / UNFINISHED).touch()
        _run([getattr(sys, "_base_executable", sys.executable), "-m", "venv", str(venv)], held)
        _write_stamp(venv, _empty_stamp(root))
        (venv / UNFINISHED).unlink()
    except (OSError, subprocess.CalledProcessError, KeyboardInterrupt) as error:
        _remove(venv)
        if isinstance(error, KeyboardInterrupt):
            raise
        raise Stop(
            f"The virtual environment {venv} could not be made: {error}. See the output above; "
            "check free disk space and permissions, then start the same command again."
        ) from error
    say("virtual environment .venv: made")


def inspect_venv(root):
    """Judge root/.venv.

    Returns:
      A state and its reason: "none"; "bad" (ours or broken, to be made anew); "foreign" (works,
      not ours, another Python); "good", with the Python version as reason.
    """
    venv = root / ".venv"
    if not os.path.lexists(venv):
        return "none", ""
    if (venv / UNFINISHED).exists():
        return "bad", "a run was killed while it changed it"
    code = "import pip, sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(
            [str(venv / "bin/python"), "-c", code], capture_output=True, text=True
        )
    except OSError:
        return "bad", "it has no working Python"
    found = done.stdout.strip()
    if done.returncode:
        return "bad", "its Python or its pip does not start"
    stamp = _read_stamp(venv)
    if stamp and stamp["root"] != str(root):
        return "bad", f"it was made in {stamp['root']}"
    if found != _version():
        return (
            ("bad", f"it has Python {found}, this is {_version()}") if stamp else ("foreign", found)
        )
    return "good", found


def install_package(root, extras, *held):
    """Install the package in place with its extras, unless setup.py is as it was.

    Args:
      held: as for prepare_venv.
    Raises:
      Stop: pip failed; a .venv into which nothing had been installed is removed.
    """
    venv = root / ".venv"
    stamp = _read_stamp(venv)
    ours = stamp is not None
    stamp = stamp or _empty_stamp(root)
    setup = _setup_hash(root)
    missing = sorted(set(extras) - set(stamp["extras"]))
    if stamp["setup"] == setup and not missing:
        say("packages: installed already")
        return
    extras = sorted({*extras, *stamp["extras"]})
    target = f"{root}[{','.join(extras)}]" if extras else str(root)
    say("packages: installing JAX and the rest of setup.py (about 430 MB to download)")
    if ours:
        (venv / UNFINISHED).touch()
    pip = [str(venv / "bin/python"), "-m", "pip", "install", "-qq"]  # errors only
    try:
        _run([*pip, "--disable-pip-version-check", "-e", target], held, cwd=root)
    except subprocess.CalledProcessError as error:
        if ours and not stamp["setup"]:
            _remove(venv)
        (venv / UNFINISHED).unlink(missing_ok=True)
        raise Stop(
            f"pip could not install {target} (exit code {error.returncode}; its message is above). "
            "Usual causes: no network or package mirror, or a full disk. Then start the same "
            "command again."
        ) from error
    _write_stamp(venv, dict(stamp, setup=setup, extras=extras))
    (venv / UNFINISHED).unlink(missing_ok=True)
    say("packages: installed")


def prepare_gvisor(root, job, rest):
    """Find runsc or install it; a quickstart does not go on without.

    Args:
      rest: what is passed on to the job; with UNSAFE_FLAG in it nothing is looked for.
    Raises:
      Stop: no runsc for the quickstart.
    """
    if job == "quickstart" and UNSAFE_FLAG in rest:
        say(f"gVisor: NOT USED, for {UNSAFE_FLAG}: generated programs run UNPROTECTED as you")
        return
    found = os.environ.get("RUNSC_PATH") or shutil.which("runsc")
    if found:
        say(f"gVisor: {found}")
        return
    say("gVisor: runsc is missing, installing it")
    code = "from sandbox import install; print(install.ensure_runsc())"
    line = [str(root / ".venv/bin/python"), "-c", code]
    done = subprocess.run(line, cwd=root, capture_output=True, text=True)
    if not done.returncode:
        say(f"gVisor: installed, {done.stdout.strip()}")
        return
    reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    reason = re.sub(r"^[\w.]+: ", "", reason)  # the exception's name
    if job == "quickstart":
        raise Stop(
            "The programs that the model writes run only inside gVisor, which is missing and could "
            f"not be installed: {reason}\nMend that and start the same command again. To run the "
            "programs UNPROTECTED, with your rights on this machine, ask for it yourself:\n"
            f"  python3 launch/bootstrap.py quickstart -- {UNSAFE_FLAG}"
        )
    say(f"gVisor: NOT HERE ({reason}). TESTS THAT NEED IT ARE SKIPPED: THE SANDBOX IS NOT TESTED")


def say(text):
    """Print one line with the seconds since the start."""
    print(f"[{time.monotonic() - BEGAN_SECONDS:6.1f} s] {text}", flush=True)


class _Lock:
    """Holds the project's root for one set-up at a time, until its last holder has ended."""

    def __init__(self, root):
        self._root = root

    def __enter__(self):
        self._descriptor = os.open(self._root, os.O_RDONLY)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another set-up in this folder")
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        return self._descriptor

    def __exit__(self, *error):
        os.close(self._descriptor)


def _ensure_venv_module():
    """Install Debian's venv package where Python came without the modules it needs."""
    if importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip"):
        return
    package = f"python{_version()}-venv"
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Stop(
            f"This Python ({sys.executable}) cannot make virtual environments: its modules venv "
            f"and ensurepip are missing. On Debian or Ubuntu, as root: apt-get install {package}. "
            "Then start the same command again."
        )
    say(f"virtual environment .venv: installing {package} with apt-get")
    quiet = {
        "env": dict(os.environ, DEBIAN_FRONTEND="noninteractive"),
        "stdout": subprocess.DEVNULL,
    }
    try:
        _run(["apt-get", "-qq", "update"], **quiet)
        _run(["apt-get", "-qq", "install", "-y", "--no-install-recommends", package], **quiet)
    except subprocess.CalledProcessError as error:
        raise Stop(
            f"apt-get could not install {package} (its message is above). Install it by hand, "
            "then start the same command again."
        ) from error


def _run(line, held=(), **more):
    """Run a command that shares our output.

    Raises:
      subprocess.CalledProcessError: its exit code is not 0.
    """
    subprocess.run(line, check=True, stdin=subprocess.DEVNULL, pass_fds=held, **more)


def _version():
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def _setup_hash(root):
    names = ("setup.py", "pyproject.toml")
    content = b"".join((root / name).read_bytes() for name in names if (root / name).exists())
    return hashlib.sha256(content).hexdigest()


def _empty_stamp(root):
    return {"root": str(root), "python": _version(), "setup": "", "extras": []}


def _read_stamp(venv):
    try:
        return json.loads((venv / STAMP).read_text())
    except (OSError, ValueError):
        return None


def _write_stamp(venv, stamp):
    partial = venv / (STAMP + ".partial")
    partial.write_text(json.dumps(stamp, indent=1) + "\n")
    os.replace(partial, venv / STAMP)


def _remove(path):
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
