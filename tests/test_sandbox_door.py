"""The operator's commands, and the search for a Debian mirror."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys

import pytest

from sandbox import __main__ as door
from sandbox import install

GVISOR = pytest.param(
    "gvisor",
    marks=pytest.mark.skipif(shutil.which("runsc") is None, reason="runsc is not installed"),
)
both_tiers = pytest.mark.parametrize("tier", ["subprocess", GVISOR])


@both_tiers
def test_call_prints_status_and_answers(tier, tmp_path, capsys):
    file = tmp_path / "p.py"
    file.write_text("def solve(xs): return sum(xs)")
    arguments = ["call", str(file), "--inputs", "[[1], [1, 2, 3]]", "--json", "--tier", tier]
    assert door.main(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["status"], told["answers"]) == ("ok", [1, 6])
    assert told["tier"].startswith(tier)


@both_tiers
def test_run_prints_output_limits_hold_and_the_exit_code_tells(tier, tmp_path, capsys):
    file = tmp_path / "p.py"
    file.write_text("print(input()); import time; time.sleep(60)")
    arguments = ["run", str(file), "--stdin", "word", "--wall-seconds", "1", "--json"]
    assert door.main([*arguments, "--tier", tier]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["status"] == "timeout" and told["exit_code"] == -9


@both_tiers
def test_run_tells_errors_and_exit_codes(tier, tmp_path, capsys):
    file = tmp_path / "p.py"
    for source, status, code in (
        ("print(1)", "ok", 0),
        ("raise ValueError('no')", "error", 1),
        ("import sys; sys.exit(3)", "error", 3),
        ("import os; os.abort()", "crash", -6),
    ):
        file.write_text(source)
        door.main(["run", str(file), "--json", "--tier", tier])
        told = json.loads(capsys.readouterr().out)
        assert (told["status"], told["exit_code"]) == (status, code), told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "MISSING"], "No such file"),
        (["run", "FOLDER"], "Is a directory"),
        (["run", "BYTES"], "not text in UTF-8"),
        (["run", "FILE", "--wall-seconds=nan"], "limits.wall_seconds=nan"),
        (
            ["run", "FILE", "--wall-seconds=-1"],
            "limits.wall_seconds=-1.0: a limit must be positive",
        ),
        (["run", "FILE", "--cpu-seconds=inf"], "limits.cpu_seconds=inf"),
        (["run", "FILE", "--memory-bytes=99999999999999999999"], "limits.memory_bytes="),
        (["run", "FILE", "--deadline-seconds=1"], "shorter than wall_seconds"),
        (["call", "FILE", "--inputs=[[1],"], "--inputs: not strict JSON"),
        (["call", "FILE", "--inputs=[NaN]"], "--inputs: not strict JSON"),
        (["call", "FILE", "--inputs={}"], "must be a JSON list"),
    ],
)
def test_what_makes_no_sense_is_refused_before_a_box_starts(arguments, words, tmp_path, capsys):
    (tmp_path / "FILE").write_text("print(1)")
    (tmp_path / "BYTES").write_bytes(b"\xff\xfe")
    (tmp_path / "FOLDER").mkdir()
    command, name, *more = arguments
    assert door.main([command, str(tmp_path / name), *more, "--tier=subprocess"]) == 2
    told = capsys.readouterr().err
    assert words in told and told.startswith("sandbox: ") and "WARNING" not in told


def test_no_sandbox_is_exit_code_2_with_a_remedy(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RUNSC_PATH", str(tmp_path / "none"))
    file = tmp_path / "p.py"
    file.write_text("print(1)")
    assert door.main(["run", str(file)]) == 2
    assert "RUNSC_PATH" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("runsc") is None, reason="runsc is not installed")
def test_doctor_finds_every_limit_enforced(capsys):
    assert door.main(["doctor", "--json"]) == 0, capsys.readouterr().out
    found = json.loads(capsys.readouterr().out)
    assert all(found["limits_enforced"].values()) and found["reach_outside"] == "nothing"


@pytest.mark.parametrize("tier", ["subprocess", GVISOR])
def test_installed_package_examines_the_machine_from_any_directory(tier, tmp_path):
    try:
        importlib.metadata.version("spade_jax")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "sandbox", "doctor", "--json", "--tier", tier],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout)
    assert found["tier"].startswith(tier) and found["limits_enforced"], done.stderr
    assert done.returncode == (0 if found["works"] else 1)


def test_mirror_is_read_from_both_forms_of_apt_sources():
    line = "deb [signed-by=/k] http://mirror.test/debian bookworm main\n"
    block = (
        "Types: deb\nURIs: http://other.test/security\nSuites: bookworm-security\n\n"
        "Types: deb\n# a comment\nURIs: http://mirror.test/debian\n"
        "Suites: bookworm bookworm-updates\nSigned-By: /k\n"
    )
    for text in (line, block):
        assert install.source_of(text, "bookworm") == "[signed-by=/k] http://mirror.test/debian"
        assert install.source_of(text, "bookworm-backports") is None
    assert install.source_of(block, "bookworm-updates") is not None
    assert install.source_of(line, "trixie") is None
