"""Pools, dumps and memory of the public implementation become pools; damaged entries are named."""

import hashlib
import json
import pathlib
import shutil
import subprocess
import sys

import pytest

from spade_jax import library, pool_files, public_pool

ROOT = pathlib.Path(__file__).parents[1]
DATA = pathlib.Path(__file__).parent / "data" / "public_pool"


def door(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "launch.import_pool", *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.fixture
def static(tmp_path):
    return pathlib.Path(shutil.copytree(DATA / "static", tmp_path / "static"))


def taken(source, *arguments):
    return public_pool.take(public_pool.read(source), *arguments)


def test_a_static_pool_is_imported_and_read_back_with_the_same_programs(static, tmp_path):
    done = door(f"--source={static}", f"--output={tmp_path / 'pool'}")
    assert done.returncode == 0, done.stderr
    assert "3 environments imported, 0 refused" in done.stdout
    seeds = library.load(tmp_path / "pool", ("games",), ("train",))
    texts = [path.read_text() for path in sorted((static / "games").iterdir())]
    assert [seed.code for seed in seeds] == texts
    assert [seed.skill for seed in seeds] == [
        "Mathematical Reasoning", "Causal Inference", "Optimization",
    ]  # fmt: skip


def test_damaged_missing_and_unlisted_files_are_refused_by_name(static, tmp_path):
    first, second, third = sorted((static / "games").iterdir())
    first.write_text(first.read_text() + "# changed\n")
    second.unlink()
    shutil.copy(third, static / "games" / "game_00009_000_optimization.py")
    done = door(f"--source={static}", f"--output={tmp_path / 'pool'}")
    assert done.returncode == 1 and "1 environments imported, 3 refused" in done.stdout
    assert f"games/{first.name}: its checksum is not the one" in done.stderr
    assert f"games/{second.name}: the file is missing" in done.stderr
    assert "games/game_00009_000_optimization.py: it is not listed" in done.stderr
    manifest = json.loads((tmp_path / "pool" / "manifest.json").read_text())
    assert len(manifest["provenance"]["refused"]) == 3


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"class AEnv(", "syntax"),
        (b"\xff\xfe\x00", "no UTF-8"),
        (b"x = 1\n", "no class whose name ends in Env"),
        (b"", "no class whose name ends in Env"),
    ],
)
def test_programs_that_cannot_be_used_are_refused(tmp_path, content, reason):
    (tmp_path / "game_00000_000_optimization.py").write_bytes(content)
    made, refused = taken(tmp_path)
    assert made == [] and reason in refused["game_00000_000_optimization.py"]


def test_an_import_runs_nothing(tmp_path):
    witness = tmp_path / "ran"
    text = f"open({str(witness)!r}, 'w')\n\nclass AEnv:\n    pass\n"
    (tmp_path / "game_00000_000_optimization.py").write_text(text)
    done = door(f"--source={tmp_path}", f"--output={tmp_path / 'pool'}")
    assert done.returncode == 0, done.stderr
    assert not witness.exists()


def test_a_dump_brings_hints_and_generations():
    made, refused = taken(DATA / "dump")
    assert refused == {}
    assert [one.hint for one in made] == ["Multiply before you take away.", None]
    assert [one.origin["generation"] for one in made] == [0, 1]
    assert [one.skill for one in made] == ["Spatial Reasoning", "Logical Deduction"]


def test_a_cache_brings_the_hint_beside_the_program(tmp_path):
    source = next((DATA / "dump").rglob("*_spatial_reasoning.py"))
    shutil.copy(source, tmp_path)
    (tmp_path / f"{source.stem}_hint.txt").write_text("Look twice.\n")
    (made,), _ = taken(tmp_path)
    assert made.hint == "Look twice." and made.skill == "Spatial Reasoning"


def test_lines_of_the_tool_pool_are_checked(tmp_path):
    made, refused = taken(DATA / "tools.jsonl")
    assert [one.setting for one in made] == ["tool_use", "tool_use"] and refused == {}
    assert [one.skill for one in made] == ["API Orchestration", "State Modification"]
    rows = (DATA / "tools.jsonl").read_text().replace("lantern", "torch") + "{torn\n"
    (tmp_path / "tools.jsonl").write_text(rows)
    made, refused = taken(tmp_path / "tools.jsonl")
    assert len(made) == 1 and sorted(refused) == [
        "game_00001_000_state_modification.py", "line 3",
    ]  # fmt: skip


def test_memory_keeps_statistics_and_needs_whole_programs():
    made, refused = taken(DATA / "env_memory.json")
    assert dict(made[0].statistics) == {"win_rate": 0.375, "regret": 0.25}
    assert made[0].origin["rollout_id"] == 4
    (reason,) = refused.values()
    assert "cut after 2000 characters" in reason and "--files" in reason
    files = DATA / "env_memory_files"
    made, refused = public_pool.take(public_pool.read(DATA / "env_memory.json", files))
    assert refused == {} and made[1].source == next(files.iterdir()).read_text()


@pytest.mark.parametrize("name", ["/", "..", "*", "[", "games", "no\0file.py"])
def test_a_memory_entry_with_a_hostile_name_is_refused_alone(tmp_path, name):
    rows = json.loads((DATA / "env_memory.json").read_text())
    rows[1]["game_file"] = name
    (tmp_path / "env_memory.json").write_text(json.dumps(rows))
    (tmp_path / "games").mkdir()
    found = public_pool.read(tmp_path / "env_memory.json", tmp_path)
    made, refused = public_pool.take(found)
    assert len(made) == 1 and list(refused) == [name]


@pytest.mark.parametrize("bad", [1.5, "half", True, float("nan")])
def test_memory_with_a_win_rate_that_is_none_is_refused(tmp_path, bad):
    rows = json.loads((DATA / "env_memory.json").read_text())[:1]
    rows[0]["actor_win_rate"] = bad
    (tmp_path / "env_memory.json").write_text(json.dumps(rows))
    made, refused = taken(tmp_path / "env_memory.json")
    assert made == [] and "win_rate" in next(iter(refused.values()))


def test_a_copy_and_an_unknown_skill_are_refused(tmp_path):
    text = (DATA / "env_memory_files/game_00008_001_causal_inference.py").read_text()
    for name in ("game_00000_000_optimization.py", "game_00000_001_optimization.py"):
        (tmp_path / name).write_text(text)
    (tmp_path / "game_00000_002_memory_recall.py").write_text(text.replace("pots", "cups"))
    made, refused = taken(tmp_path)
    assert len(made) == 1
    assert "same program as" in refused["game_00000_001_optimization.py"]
    assert "--skill" in refused["game_00000_002_memory_recall.py"]
    made, _ = taken(tmp_path, "Pattern Recognition")
    assert [one.skill for one in made] == ["Optimization", "Pattern Recognition"]


def test_nothing_is_written_where_nothing_can_be_read(tmp_path):
    for source in (tmp_path / "none", DATA / "env_memory_files" / "none.json"):
        done = door(f"--source={source}", f"--output={tmp_path / 'pool'}")
        assert done.returncode == 2 and "does not exist" in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "pool").exists()


def entry(**changes):
    fields = {
        "family": "adder_1", "setting": "compact", "skill": "Optimization", "hint": "Add.",
        "source": '"""Its own words."""\nclass SumEnv(QAEnv):\n    pass\n', "difficulty": "hard",
        "max_turns": 3, "statistics": {"win_rate": 0.5, "draws": None},
    }  # fmt: skip
    return pool_files.Entry(**(fields | changes))


@pytest.fixture
def pool(tmp_path):
    two = entry(family="adder_2", hint=None, max_turns=None, source="class BEnv(QAEnv):\n    pass")
    pool_files.write(tmp_path / "pool", [entry(), two], {"kind": "test"})
    return tmp_path / "pool"


def test_a_pool_gives_back_what_was_written(pool):
    first, second = library.load(pool, ("compact",), ("train",))
    assert first.code == entry().source and second.code == "class BEnv(QAEnv):\n    pass\n"
    made = library.environment(first, uid=-1, max_turns=8)
    assert (made.hint, made.difficulty, made.max_turns) == ("Add.", "hard", 3)
    made = library.environment(second, uid=-2, max_turns=8)
    assert (made.hint, made.difficulty, made.max_turns) == (None, "hard", 8)
    row = json.loads((pool / "manifest.json").read_text())["environments"][0]
    assert row["statistics"] == {"win_rate": 0.5, "draws": None}
    assert row["sha256"] == hashlib.sha256((pool / row["file"]).read_bytes()).hexdigest()


def test_a_pool_with_damaged_missing_or_foreign_files_is_refused_by_name(pool):
    files = pool / "environments"
    (files / "adder_1.py").write_text((files / "adder_1.py").read_text().replace("pass", "pas"))
    (files / "adder_2.py").rename(files / "other.py")
    with pytest.raises(ValueError) as caught:
        library.load(pool, ("compact",), ("train",))
    assert "adder_1.py is damaged" in str(caught.value)
    assert "adder_2.py is missing" in str(caught.value)
    assert "other.py is not in manifest.json" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("{", "", "is damaged"),
        ("spade_jax pool 1", "pool", "launch.import_pool"),
        ('"file": "environments/adder_1.py"', '"file": "../adder_1.py"', "no usable file"),
        ('"max_turns": 3', '"max_turns": "3"', "no usable max_turns"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused(pool, old, new, told):
    path = pool / "manifest.json"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(ValueError, match=told):
        library.load(pool, ("compact",), ("train",))


def test_a_pool_never_replaces_a_folder_and_names_its_entries_once(pool, tmp_path):
    with pytest.raises(FileExistsError, match="another directory"):
        pool_files.write(pool, [entry()], {})
    with pytest.raises(ValueError, match="adder_1.*twice"):
        pool_files.write(tmp_path / "twice", [entry(), entry()], {})
    with pytest.raises(ValueError, match="no file name"):
        entry(family="../x")
    with pytest.raises(ValueError, match="no skill"):
        entry(skill="Chess")
    assert not (tmp_path / "twice").exists()
