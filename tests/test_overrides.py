"""A mistyped override ends in one paragraph that names the nearest knob."""

import pathlib
import subprocess
import sys

from launch import overrides

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOOR = """
import sys
from absl import app, flags
from ml_collections import config_flags
from launch import overrides
CONFIG = config_flags.DEFINE_config_file("config")
app.run(lambda argv: print(CONFIG.value.rollout.max_turns), flags_parser=overrides.parse_flags)
"""
EXPERIMENT = """
import ml_collections
def get_config():
    return ml_collections.ConfigDict({"rollout": {"max_turns": 2}})
"""


def run(folder, *flags):
    (folder / "x.py").write_text(EXPERIMENT)
    line = [sys.executable, "-c", DOOR, f"--config={folder}/x.py", *flags]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True)


def test_known_override_is_taken(tmp_path):
    done = run(tmp_path, "--config.rollout.max_turns=3")
    assert (done.returncode, done.stdout) == (0, "3\n")


def test_unknown_override_is_told_in_one_paragraph(tmp_path):
    done = run(tmp_path, "--config.rollot.max_turns=3")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "Did you mean rollout.max_turns?" in done.stderr


def test_a_missing_or_mistyped_flag_is_told_in_one_paragraph(tmp_path):
    line = [sys.executable, "-m", "launch.train", "--config=experiments/quickstart.py"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.strip().startswith("--workdir is missing: Folder of the run")
    done = run(tmp_path, "--workdri=x")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "Unknown command line flag 'workdri'" in done.stderr and "--help" in done.stderr


def test_missing_experiment_file_is_told_in_one_paragraph(tmp_path):
    done = run(tmp_path, "--config=nowhere.py")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "nowhere.py" in done.stderr


def test_first_unknown_override_is_explained():
    line = ["train", "--config=x.py", "--config.seed=1", "--noconfig.warmstart.from_scratch"]
    assert overrides.explain(line) is None
    message = overrides.explain([*line, "--config.rollout.max_turn=3"])
    assert message.startswith("rollout.max_turn is not a knob. Did you mean rollout.max_turns?")
