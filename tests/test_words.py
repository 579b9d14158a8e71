"""No tracked text names a path of the machine it was written on."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Put together here, so that this file holds none of them.
NEEDLES = ["/" + "work/", "../" + "shared"]


def tracked() -> list[pathlib.Path]:
    """List the files that git tracks; skip where this is no checkout."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def found(path: pathlib.Path) -> list[str]:
    """List the needles that stand in a file; a file that is no text holds none."""
    try:
        text = path.read_bytes().decode("utf-8")
    except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
        return []
    return [needle for needle in NEEDLES if needle in text]


def test_no_tracked_text_names_a_path_of_a_machine():
    offences = {str(path.relative_to(ROOT)): found(path) for path in tracked()}
    assert {name: needles for name, needles in offences.items() if needles} == {}


@pytest.mark.parametrize("needle", NEEDLES)
def test_a_needle_is_seen(tmp_path, needle):
    path = tmp_path / "page.md"
    path.write_text(f"see {needle}file")
    assert needle in found(path)
