"""Seed environments become playable records by setting, split and knob, without being run."""

import dataclasses

import numpy as np
import pytest

from spade_jax import fingerprints, library, programs, records

PROGRAM = '''"""Add numbers.

family: {family}
skill: Mathematical Reasoning
setting: {setting}
kind: single_turn
split: {split}
knobs: 4 -> 3 4 5; 9 -> 20 9 6
"""


class SumEnv(QAEnv):
    def task(self, rng):
        xs = [rng.randint(1, 9) for _ in range(4)]
        return f"sum 4 of {{xs}}", sum(xs), "add"
'''


@pytest.fixture
def folder(tmp_path):
    for name, family, setting, split in (
        ("a.py", "zebra", "compact", "train"),
        ("b.py", "adder", "compact", "train"),
        ("c.py", "other", "compact", "held_out"),
        ("d.py", "game", "games", "train"),
    ):
        text = PROGRAM.format(family=family, setting=setting, split=split)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_files_are_chosen_by_setting_and_split_in_order_of_their_families(folder):
    def families(*wanted):
        return [seed.family for seed in library.load(folder, *wanted)]

    assert families(("compact",), ("train",)) == ["adder", "zebra"]
    assert families(("compact", "games"), ("train", "held_out")) == [
        "adder", "game", "other", "zebra",
    ]  # fmt: skip
    assert families(("tool_use",), ("train",)) == []


def test_two_files_of_one_family_are_refused_by_name(folder):
    text = PROGRAM.format(family="adder", setting="compact", split="train")
    (folder / "e.py").write_text(text)
    with pytest.raises(ValueError, match="adder"):
        library.load(folder, ("compact",), ("train",))


def test_a_missing_directory_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="Set config.seed_environments"):
        library.load(tmp_path / "none", ("compact",), ("train",))


def test_an_environment_carries_what_its_file_says(folder):
    seed = library.load(folder, ("compact",), ("train",))[0]
    made = library.environment(seed, uid=-3, max_turns=2)
    assert (made.uid, made.family, made.class_name) == (-3, "adder", "SumEnv")
    assert (made.setting, made.skill, made.difficulty) == ("compact", records.SKILLS[0], "medium")
    assert (made.generation, made.max_turns, made.source) == (-1, 2, seed.code)
    assert made.digest == fingerprints.digest(programs.parse(seed.code))
    assert '"""' not in made.source


def test_difficulty_turns_the_knobs_and_leaves_the_wording(folder):
    seed = library.load(folder, ("compact",), ("train",))[0]
    hard = library.environment(seed, uid=-1, max_turns=1, difficulty="hard")
    assert "range(5)" in hard.source and "randint(1, 6)" in hard.source
    assert "sum 4 of" in hard.source and hard.difficulty == "hard"
    easy = library.environment(seed, uid=-1, max_turns=1, difficulty="easy")
    assert "range(3)" in easy.source and "randint(1, 20)" in easy.source


# Place 0 is easy, 1 hard; the word is the third in which the mean of the places stands.
def test_a_variant_says_how_hard_its_knobs_are(folder):
    seed = library.load(folder, ("compact",), ("train",))[0]
    rng, seen = np.random.default_rng(0), set()
    for _ in range(300):
        code, word = library.variant(seed, rng)
        count = int(code.split("range(")[1].split(")")[0])
        top = int(code.split("randint(1, ")[1].split(")")[0])
        assert 3 <= count <= 5 and 6 <= top <= 20
        place = ((count - 3) / 2 + (20 - top) / 14) / 2
        expected = "easy" if place < 1 / 3 else "medium" if place < 2 / 3 else "hard"
        if min(abs(place - 1 / 3), abs(place - 2 / 3)) > 1e-9:
            assert word == expected
        seen.add(word)
        assert not isinstance(programs.parse(code), programs.Finding)
    assert seen == set(records.DIFFICULTIES)


def test_variants_are_the_same_for_the_same_stream(folder):
    seed = library.load(folder, ("compact",), ("train",))[0]
    draws = [
        [library.variant(seed, rng) for _ in range(5)]
        for rng in (np.random.default_rng(1), np.random.default_rng(1))
    ]
    assert draws[0] == draws[1]


def test_a_program_without_knobs_has_one_variant(folder):
    path = folder / "a.py"
    path.write_text(path.read_text().replace("knobs: 4 -> 3 4 5; 9 -> 20 9 6\n", ""))
    seed = library.load(folder, ("compact",), ("train",))[1]
    assert library.variant(seed, np.random.default_rng(0)) == (seed.code, "medium")


def test_a_seed_file_that_does_not_parse_is_named(folder):
    seed = library.load(folder, ("compact",), ("train",))[0]
    broken = dataclasses.replace(seed, code="class SumEnv(")
    with pytest.raises(ValueError, match="b.py: syntax.*Mend the seed file"):
        library.environment(broken, uid=-1, max_turns=1)
