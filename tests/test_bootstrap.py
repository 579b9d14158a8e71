"""The set-up skips what is done, mends what is half done, and never falls back by itself."""

import ast
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

from launch import bootstrap

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
SCRIPT = pathlib.Path(bootstrap.__file__)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "setup.py").write_text("import setuptools\nsetuptools.setup(name='x')\n")
    return tmp_path


def stand_in(root, *, version=VERSION, pip_exit=0, ours=True, stamp=None):
    """Write a .venv whose Python is a small script: it logs what pip is asked for."""
    python = root / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f'#!/bin/sh\nif [ "$1" = -c ]; then echo {version}; exit 0; fi\n'
        f'echo "$@" >> {root}/calls\nexit {pip_exit}\n'
    )
    python.chmod(0o755)
    if ours:
        empty = {"root": str(root), "python": version, "setup": "", "extras": []}
        (root / ".venv/bootstrap.json").write_text(json.dumps(empty | (stamp or {})))


def calls(root):
    path = root / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_script_is_read_by_old_pythons_so_that_they_get_a_message():
    ast.parse(SCRIPT.read_text(), feature_version=(3, 6))


def test_script_imports_only_the_standard_library():
    tree = ast.parse(SCRIPT.read_text())
    names = [
        alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names
    ]
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert all(name.split(".")[0] in sys.stdlib_module_names for name in names)


@pytest.mark.parametrize("arguments", [[], ["test"], ["tests", "-q"], ["--help"]])
def test_bad_command_line_names_the_jobs(arguments):
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True)
    assert done.returncode == 1 and not done.stdout
    assert "Give one of quickstart, tests, setup" in done.stderr


def test_arguments_after_the_dashes_are_passed_on():
    assert bootstrap.parse(["tests", "--", "-n", "2"]) == ("tests", ["-n", "2"])
    assert bootstrap.parse(["quickstart"]) == ("quickstart", [])


def test_environment_is_made_and_then_found(root, capfd):
    bootstrap.prepare_venv(root)
    assert bootstrap.inspect_venv(root) == ("good", VERSION)
    bootstrap.prepare_venv(root)
    assert f"found, Python {VERSION}" in capfd.readouterr().out.splitlines()[-1]


def test_killed_change_makes_the_environment_bad(root):
    stand_in(root)
    assert bootstrap.inspect_venv(root)[0] == "good"
    (root / ".venv/bootstrap.unfinished").touch()
    assert bootstrap.inspect_venv(root) == ("bad", "a run was killed while it changed it")


def test_broken_environment_is_bad(root):
    (root / ".venv/bin").mkdir(parents=True)
    assert bootstrap.inspect_venv(root)[0] == "bad"
    (root / ".venv/bin/python").symlink_to("/nowhere/python3")
    assert bootstrap.inspect_venv(root) == ("bad", "it has no working Python")
    (root / ".venv/bin/python").unlink()
    (root / ".venv/bin/python").symlink_to("/bin/false")
    assert bootstrap.inspect_venv(root) == ("bad", "its Python or its pip does not start")


def test_moved_environment_is_bad(root):
    stand_in(root, stamp={"root": "/elsewhere"})
    assert bootstrap.inspect_venv(root) == ("bad", "it was made in /elsewhere")


def test_environment_of_another_python_is_remade_only_if_it_is_ours(root):
    stand_in(root, version="3.99")
    state, why = bootstrap.inspect_venv(root)
    assert state == "bad" and "3.99" in why
    (root / ".venv/bootstrap.json").unlink()
    assert bootstrap.inspect_venv(root) == ("foreign", "3.99")
    with pytest.raises(bootstrap.Stop, match="was not made by this script and has Python 3.99"):
        bootstrap.prepare_venv(root)
    assert (root / ".venv/bin/python").exists()


def test_packages_are_installed_once_per_setup_file(root):
    stand_in(root)
    bootstrap.install_package(root, [])
    bootstrap.install_package(root, [])
    assert len(calls(root)) == 1 and calls(root)[0].endswith(f"-e {root}")
    (root / "setup.py").write_text("# changed\n")
    bootstrap.install_package(root, [])
    assert len(calls(root)) == 2
    assert not (root / ".venv/bootstrap.unfinished").exists()


def test_extras_are_added_and_kept(root):
    stand_in(root)
    bootstrap.install_package(root, ["test"])
    bootstrap.install_package(root, [])
    bootstrap.install_package(root, ["fleet"])
    assert [call.split("[")[-1] for call in calls(root)] == ["test]", "fleet,test]"]


def test_failed_first_installation_leaves_nothing(root):
    stand_in(root, pip_exit=1)
    with pytest.raises(bootstrap.Stop, match="pip could not install"):
        bootstrap.install_package(root, [])
    assert not (root / ".venv").exists()


@pytest.mark.parametrize("ours", [True, False])
def test_failed_update_leaves_what_was_there(root, ours):
    stand_in(root, pip_exit=1, ours=ours, stamp={"setup": "an older one"})
    with pytest.raises(bootstrap.Stop, match="pip could not install"):
        bootstrap.install_package(root, [])
    assert bootstrap.inspect_venv(root)[0] == "good"


@pytest.fixture
def no_gvisor(root, monkeypatch):
    monkeypatch.delenv("RUNSC_PATH", raising=False)
    monkeypatch.setenv("PATH", str(root))
    (root / ".venv/bin").mkdir(parents=True)
    (root / ".venv/bin/python").symlink_to(sys.executable)
    (root / "sandbox").mkdir()
    text = "def ensure_runsc():\n    raise RuntimeError('no package to be had')\n"
    (root / "sandbox/install.py").write_text(text)
    return root


def test_quickstart_without_gvisor_stops_and_names_the_flag(no_gvisor):
    with pytest.raises(bootstrap.Stop) as stop:
        bootstrap.prepare_gvisor(no_gvisor, "quickstart", [])
    assert "no package to be had" in str(stop.value)
    assert "quickstart -- --config.sandbox.tier=subprocess" in str(stop.value)


def test_tests_without_gvisor_go_on_and_say_so(no_gvisor, capfd):
    bootstrap.prepare_gvisor(no_gvisor, "tests", [])
    assert "THE SANDBOX IS NOT TESTED" in capfd.readouterr().out


def test_unsafe_mode_is_asked_for_and_said_aloud(no_gvisor, capfd):
    flags = ["--config.sandbox.tier=subprocess"]
    bootstrap.prepare_gvisor(no_gvisor, "quickstart", flags)
    assert "UNPROTECTED" in capfd.readouterr().out


def test_gvisor_that_is_missing_is_installed(no_gvisor, capfd):
    text = "def ensure_runsc():\n    return '/opt/runsc'\n"
    (no_gvisor / "sandbox/install.py").write_text(text)
    bootstrap.prepare_gvisor(no_gvisor, "quickstart", [])
    assert "installed, /opt/runsc" in capfd.readouterr().out


def test_gvisor_on_the_path_is_used(no_gvisor, capfd):
    (no_gvisor / "runsc").write_text("#!/bin/sh\n")
    (no_gvisor / "runsc").chmod(0o755)
    bootstrap.prepare_gvisor(no_gvisor, "quickstart", [])
    assert f"gVisor: {no_gvisor}/runsc" in capfd.readouterr().out


def test_second_set_up_waits_for_the_first(root):
    code = (
        "import sys, pathlib; from launch import bootstrap\n"
        f"with bootstrap._Lock(pathlib.Path({str(root)!r})): print('in', flush=True)"
    )
    descriptor = os.open(root, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=bootstrap.ROOT, stdout=subprocess.PIPE, text=True
    ) as second:
        assert "waiting" in second.stdout.readline()
        time.sleep(0.1)
        assert second.poll() is None
        os.close(descriptor)
        assert second.stdout.readline() == "in\n"
