"""Public libraries are lent to the sandbox, listed and wrapped there; a small one plays them."""

import json
import shutil

import pytest

from launch import check_env, wrap_library
from sandbox import crew, records
from spade_jax import crews, lent, library, pool_files, validate, window
from spade_jax.suites import environments, libraries

LIBRARY = """
import helper_of_one_file
from reasoning_gym import factory
from reasoning_gym.factory import create_dataset


def has_curriculum(name):
    return name == "sums"


def create_curriculum(name):
    return factory.Curriculum()
"""
FACTORY = """
import types


class Sums:
    __module__ = "reasoning_gym.arithmetic.sums"

    def __init__(self, seed, size, top=9):
        self.left, self.right = seed % (top + 1), seed // 7 % (top + 1)

    def __getitem__(self, index):
        total = self.left + self.right
        return {"question": f"{self.left} + {self.right}?", "answer": f"{total}\\n."}

    def score_answer(self, answer, entry):
        int(answer.split()[0])  # fails on what is no number
        return 1.0 if answer == entry["answer"] else 0.25


class Broken(Sums):
    def __getitem__(self, index):
        raise OSError("no network here")


class Curriculum:
    def set_global_level(self, level):
        self.level = level

    def generate_configuration(self, defaults):
        return types.SimpleNamespace(**defaults, top=10 ** (self.level + 1))


DATASETS = {"sums": (Sums, None), "broken": (Broken, None)}


def create_dataset(name, **options):
    return DATASETS[name][0](**options)
"""
GEM = """
import types


class Game:
    max_turns = 40

    def __init__(self, answer):
        self.data = None if answer is None else {"answer": answer}

    def reset(self, seed):
        return f"Task {seed}.", {"suffix": "Say it."}

    def step(self, action):
        won = bool(self.data) and action == "\\\\boxed{7}"
        return "No.", float(won), won, False, {}


def make(name):
    return Game("7" if name.startswith("rg:") else None)
"""
METADATA = "Metadata-Version: 2.1\nName: {}\nVersion: {}\n{}"
TIER = "gvisor" if shutil.which("runsc") else "subprocess"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A library of two data sets, one of them broken, that requires a module of one file."""
    home = tmp_path / "site"
    (home / "reasoning_gym").mkdir(parents=True)
    (home / "reasoning_gym" / "__init__.py").write_text(LIBRARY)
    (home / "reasoning_gym" / "factory.py").write_text(FACTORY)
    (home / "helper_of_one_file.py").write_text("VALUE = 1\n")
    for name, top, version, requires in (
        ("reasoning_gym", "reasoning_gym", "9.9", "Requires-Dist: helper-one>=1\n"),
        ("helper_one", "helper_of_one_file", "9.9", ""),
    ):
        folder = home / f"{name}-{version}.dist-info"
        folder.mkdir()
        key = name.replace("_", "-")
        (folder / "METADATA").write_text(METADATA.format(key, version, requires))
        (folder / "top_level.txt").write_text(top + "\n")
    monkeypatch.syspath_prepend(str(home))
    return lent.lending(crew.CrewConfig(tier=TIER, boxes=1), ("reasoning-gym",))


def test_a_distribution_brings_what_it_requires(installed):
    assert set(lent.own(["Reasoning_Gym"])) == {"reasoning_gym"}
    assert set(lent.brought(["reasoning-gym"])) >= {"reasoning_gym", "helper_of_one_file"}
    with pytest.raises(ValueError, match="no-such-thing is not installed"):
        lent.brought(["no-such-thing"])


def test_what_is_installed_is_looked_through_once(installed, monkeypatch):
    scan, scans = lent.importlib.metadata.packages_distributions, []
    monkeypatch.setattr(
        lent.importlib.metadata, "packages_distributions", lambda: scans.append(1) or scan()
    )
    lends = lent.lending(crew.CrewConfig(), ("reasoning-gym",))
    assert lends.preload == ("reasoning_gym",) and "helper_of_one_file" in lends.packages
    assert len(scans) == 1


# The box has loaded it before: the program finds it without importing it, and only where named.
def test_a_lent_library_is_loaded_beforehand_for_programs_that_name_it(installed):
    source = "import sys\ndef f(_):\n    return 'helper_of_one_file' in sys.modules\n"
    with crew.Crew(installed) as boxes:
        named = boxes.call("# reasoning_gym\n" + source, "f", [0])
        assert (named.status, named.value) == (records.OK, [True]), named.detail
        assert boxes.call(source, "f", [0]).value == [False]


# An error of a library as it loads must not end the template: its programs would never be answered.
def test_a_library_that_fails_as_it_loads_is_left_to_the_program(installed, tmp_path):
    (tmp_path / "site" / "reasoning_gym" / "factory.py").write_text("raise OSError('no device')\n")
    source = "def f(_):\n    try:\n        import reasoning_gym\n    except OSError as error:\n"
    source += "        return str(error)\n"
    with crew.Crew(installed) as boxes:
        assert boxes.call(source, "f", [0]).value == ["no device"]


def test_a_fleet_is_asked_for_the_folders_that_a_distribution_brings(installed, tmp_path):
    told = tmp_path / "site" / "reasoning_gym-9.9.dist-info" / "top_level.txt"
    told.write_text("reasoning_gym\nhelper_of_one_file\nreasoning_gym/_inner\n")
    assert set(lent.own(["reasoning-gym"])) > {"reasoning_gym"}
    assert crews.folders(["reasoning-gym"]) == ("reasoning_gym",)


def test_a_library_becomes_a_pool_that_plays_and_names_what_fails(installed, tmp_path):
    with crew.Crew(installed) as boxes:
        made = libraries.entries("reasoning_gym", boxes, turns=2, levels=(-1, 1))
        left_out = wrap_library.failures(made, boxes)
        assert [entry.family for entry in made] == [
            "reasoning_gym_broken", "reasoning_gym_sums", "reasoning_gym_sums_level_1",
        ]  # fmt: skip
        assert list(left_out) == ["reasoning_gym_broken"]
        assert "no network here" in left_out["reasoning_gym_broken"]
        pool_files.write(tmp_path / "pool", made[1:], {"kind": "library"})
        seeds = library.load(tmp_path / "pool", ("games",), ("train",))
        assert [seed.family for seed in seeds] == [entry.family for entry in made[1:]]
        verdicts = check_env.check(
            [tmp_path / "pool" / "environments" / f"{seed.family}.py" for seed in seeds],
            "auto", boxes,
            validate.ValidateConfig(more_imports=("reasoning_gym",), off=("degenerate",)),
        )  # fmt: skip
    # A wrong number earns a quarter, so players that do not think are left out here. The solution
    # has two lines and is one action; the files differ in their data only and are no duplicates.
    assert [v.environment is not None for v in verdicts] == [True, True], verdicts


# Seed 5 asks 5 + 0. A wrong number has the library's 0.25 when no turn is left; a word, on which
# its scorer fails, has 0.
def test_the_last_try_has_the_score_of_the_library(installed):
    source = libraries.program("reasoning_gym", ["sums", {}, None], turns=2)
    load = {"op": "load", "seed": 5, "max_turns": None, "pacing": "respect"}
    told = []
    with crew.Crew(installed) as boxes:
        for play, said in enumerate(([r"\boxed{5" + "\n.}"], [r"\boxed{4}"] * 2, ["no"] * 2)):
            with boxes.open(source) as session:
                steps = [{"op": "step", "action": action} for action in said]
                asked = [load, {"op": "reset", "seed": 5}, *steps]
                found = session.step([{"play": play, **request} for request in asked])
            assert "5 + 0?" in found[1].value["observation"]
            told.append([(o.value["reward"], o.value["terminated"]) for o in found[2:]])
    assert told == [[(1.0, True)], [(0.0, False), (0.25, True)], [(0.0, False), (0.0, True)]]


# A game without a reference answer must not be refused for a solution() that tells none, and one of
# 40 turns ends at the run's limit of 3.
@pytest.mark.parametrize(("name", "answer"), [("game:G", None), ("rg:sums", "\\boxed{7}")])
def test_a_game_of_gem_has_a_solution_where_the_package_has_and_ends_at_the_limit(name, answer):
    source = libraries.program("gem", [name, {}], turns=2)
    load = {"op": "load", "seed": 5, "max_turns": 3, "pacing": "respect"}
    asked = [load, {"op": "reset", "seed": 5}, {"op": "solution"}]
    asked += [{"op": "step", "action": "no"}] * 3
    with crew.Crew(crew.CrewConfig(tier=TIER, boxes=1)) as boxes:
        with boxes.open(source, modules={"gem": GEM}) as session:
            found = [o.value for o in session.step([{"play": 0, **one} for one in asked])]
    assert found[1]["observation"].startswith("Task 5.\nSay it.")
    assert found[2] == {"present": answer is not None, "solution": answer}
    ends = [(step["terminated"], step["truncated"]) for step in found[3:]]
    assert ends == [(False, False), (False, False), (False, True)]


def test_a_question_without_an_answer_is_judged_without_one(installed, tmp_path):
    factory = tmp_path / "site" / "reasoning_gym" / "factory.py"
    silent = factory.read_text().replace('"answer": f"{total}\\n."', '"answer": None')
    assert silent != factory.read_text()
    factory.write_text(silent)
    path = tmp_path / "sums.py"
    path.write_text(libraries.program("reasoning_gym", ["sums", {}, None], turns=2))
    config = validate.ValidateConfig(more_imports=("reasoning_gym",), off=("degenerate",))
    with crew.Crew(installed) as boxes:
        (verdict,) = check_env.check([path], "games", boxes, config)
    assert verdict.environment is not None, verdict
    assert verdict.checks["unwinnable"] == validate.NOT_APPLICABLE


RLVE = {
    "environments/sums.py": """
class Sums:
    def generator(self, seed, parameter):
        self.parameter = {"reference_answer": parameter["n"]}
        return True

    def prompt_generator(self):
        return f"Say {self.parameter['reference_answer']}."

    def verifier(self, said):
        return {"accuracy": int(said == f"<answer>{self.parameter['reference_answer']}</answer>")}
""",
    "parameter_controllers/sums.py": """
class SumsController:
    n = 100

    def update(self):
        self.n += 1

    def get_parameter_list(self):
        return [{"n": self.n}]
""",
    "__init__.py": "",
}


# Level 2 of the file and level 3 of the window make five steps of the controller. The window's
# highest level is 20, that of the knob too.
def test_the_levels_of_rlve_follow_a_window(tmp_path, monkeypatch):
    site = tmp_path / "site"
    for name, text in RLVE.items():
        (site / "Gym" / name).parent.mkdir(parents=True, exist_ok=True)
        (site / "Gym" / name).write_text(text)
    folder = site / "rlve_gym-9.9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(METADATA.format("rlve-gym", "9.9", ""))
    (folder / "top_level.txt").write_text("Gym\n")
    monkeypatch.syspath_prepend(str(site))
    told = ["Gym.environments.sums", "Sums", "Gym.parameter_controllers.sums", "SumsController"]
    made = libraries._entry("rlve", "Sums_level_2", "", [*told, 2], 1)
    pool_files.write(tmp_path / "pool", [made], {"kind": "library"})
    (seed,) = library.load(tmp_path / "pool", ("games",), ("train",))
    plain = library.environment(seed, uid=-1, max_turns=1)
    shown = []
    with crew.Crew(lent.lending(crew.CrewConfig(tier=TIER, boxes=1), ("rlve-gym",))) as boxes:
        for one in (plain, window.at_level(seed, plain, 3, 20)):
            load = {"op": "load", "seed": 5, "max_turns": 1, "pacing": "respect"}
            asked = [load, {"op": "reset", "seed": 5}, {"op": "solution"}]
            with boxes.open(one.source) as session:
                found = session.step([{"play": 0, **request} for request in asked])
            shown.append((found[1].value["observation"][:8], found[2].value["solution"]))
    assert shown == [("Say 102.", "\\boxed{102}"), ("Say 105.", "\\boxed{105}")]


def test_configurations_are_read_in_both_forms(tmp_path):
    plain, parts = tmp_path / "plain.json", tmp_path / "parts.json"
    plain.write_text('{"leg_counting": {"min_animals": 9, "seed": 1}, "basic_arithmetic": {}}')
    rows = [
        {"dataset": "leg_counting", "params": {"min_animals": 9}},
        {"dataset": "basic_arithmetic"},
    ]
    parts.write_text(
        json.dumps({"model": "m", "categories": [{"category": "a", "datasets": rows}]})
    )
    suites = [environments.reasoning_gym(str(p), instances=3, max_turns=2) for p in (plain, parts)]
    for made in suites:
        assert made.tasks == ("basic_arithmetic", "leg_counting")
        assert made.settings["configuration"]["leg_counting"] == {"min_animals": 9}
    assert suites[0].settings == suites[1].settings
    plain.write_text('["leg_counting"]')
    with pytest.raises(ValueError, match="must hold an object"):
        environments.reasoning_gym(str(plain), instances=3, max_turns=2)
