"""The page of features names knobs, doors, suites and tests that exist, and every row has some."""

import ast
import pathlib
import re

import pytest

from launch import suite_names
from spade_jax import config, metrics, settings

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXT = (ROOT / "spade_jax" / "FEATURES.md").read_text(encoding="utf-8")
ROWS = [line.strip("|").split(" | ") for line in TEXT.splitlines() if re.match(r"\| \d", line)]
KNOBS = set(config.knobs(settings.RunConfig))
SECTIONS = {name.partition(".")[0] for name in KNOBS}


def quoted(text):
    return re.findall(r"`([^`]+)`", text)


def functions(path):
    return {node.name for node in ast.parse(path.read_text()).body if hasattr(node, "name")}


def test_the_rows_are_numbered_through_and_have_five_cells():
    assert [int(row[0]) for row in ROWS] == list(range(1, 61))
    assert {len(row) for row in ROWS} == {5}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip())
def test_a_row_names_tests_that_exist(row):
    named = quoted(row[4])
    assert named
    for name in named:
        file, _, function = name.partition("::")
        assert (ROOT / "tests" / file).is_file(), name
        assert not function or function in functions(ROOT / "tests" / file), name


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip())
def test_a_row_names_knobs_doors_suites_and_metrics_that_exist(row):
    for name in quoted(row[3]):
        first = name.split()[0].split("=")[0]
        if first.startswith("launch."):
            assert (ROOT / f"{first.replace('.', '/')}.py").is_file(), name
        elif first.startswith(("env/", "rollout/")):
            metrics.meaning(first)
        elif first.endswith(":"):
            assert first[:-1] in suite_names.NAMES, name
        elif first.partition(".")[0] in SECTIONS and not first.endswith(".py"):
            assert first in KNOBS, name


def test_what_is_missing_is_said_with_a_reason():
    missing = {int(row[0]) for row in ROWS if "**" in row[3]}
    assert missing == {8, 23, 27, 44, 46, 49, 50, 51, 53, 56, 57, 59}


def test_the_page_is_linked():
    for name in ("README.md", "WORKSPACE.md"):
        assert "spade_jax/FEATURES.md" in (ROOT / name).read_text(encoding="utf-8"), name
