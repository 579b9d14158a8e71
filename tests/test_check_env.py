"""The doors check_env and play: verdicts, exit codes, and a play by keyboard."""

import json
import pathlib
import subprocess
import sys

import broken_programs
import pytest

from launch import check_env, play
from sandbox import crew as crew_lib
from spade_jax import domains, validate

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="module")
def crew():
    with crew_lib.Crew(crew_lib.CrewConfig(tier="subprocess", boxes=2)) as started:
        yield started


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "good.py").write_text(broken_programs.GAME)
    (tmp_path / "tools.py").write_text(broken_programs.TOOLS)
    (tmp_path / "qa.py").write_text('"""Add.\n\nsetting: compact\n"""\n' + broken_programs.COMPACT)
    (tmp_path / "__init__.py").write_text("")
    return tmp_path


def door(name, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", f"launch.{name}", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **environment},
    )


def test_accepted_files_give_one_object_each_and_exit_code_0(folder):
    done = door("check_env", folder, "--json", "--unsafe_subprocess")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert [pathlib.Path(row["file"]).name for row in rows] == ["good.py", "qa.py", "tools.py"]
    assert [row["setting"] for row in rows] == ["games", "compact", "tool_use"]
    for row in rows:
        assert row["accepted"] is True and row["reason"] is None
        assert list(row["checks"]) == list(validate.CHECKS)
        tools = row["setting"] == "tool_use"
        for name, mark in row["checks"].items():
            absent = name.startswith("criteria") and not tools
            wanted = "off" if name == validate.SCREENED else "pass"  # no policy is at hand
            assert mark == (validate.NOT_APPLICABLE if absent else wanted)


def test_a_refused_file_is_named_with_its_reason_and_exit_code_1(folder):
    bad = folder / "bad.py"
    bad.write_text(broken_programs.GAME.replace("over = self.turns", "over = 0 * self.turns"))
    done = door("check_env", bad, folder / "good.py", "--unsafe_subprocess")
    assert done.returncode == 1
    assert f"refused   {bad}: never_ends" in done.stdout
    assert "  fail              never_ends" in done.stdout
    assert "1 of 2 files accepted" in done.stdout
    assert done.stdout.count("  not reached       unsolved") == 1  # of the refused file
    assert done.stdout.count("  off               unsolved") == 1  # of the other: nobody asks


@pytest.mark.parametrize("name", ["check_env", "play"])
@pytest.mark.parametrize("arguments", [(), ("missing.py",)])
def test_a_missing_file_is_one_paragraph_and_exit_code_2(name, arguments):
    done = door(name, *arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert "Traceback" not in done.stderr and len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("name", ["check_env", "play"])
def test_without_gvisor_nothing_runs_and_the_unsafe_flag_is_named(name, folder):
    done = door(name, folder / "good.py", RUNSC_PATH="/nowhere/runsc")
    assert done.returncode == 2 and done.stdout == ""
    assert "--unsafe_subprocess" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["check_env", "play"])
def test_a_distribution_that_is_not_installed_is_one_paragraph_and_exit_code_2(name, folder):
    done = door(name, folder / "good.py", "--packages=no-such-thing")
    assert done.returncode == 2 and done.stdout == ""
    assert "no-such-thing is not installed" in done.stderr and "Traceback" not in done.stderr


def test_more_modules_are_allowed_by_name(folder):
    path = folder / "good.py"
    path.write_text("import platform\n" + broken_programs.GAME)
    assert "imports outside the allow-list: platform" in check_door(path)
    assert "accepted" in check_door(path, "--imports=platform")


def test_a_message_may_take_as_long_as_asked_for(folder):
    path = folder / "good.py"
    slow = "self.turns = 0\n        import time; time.sleep(0.6)\n"
    path.write_text(broken_programs.GAME.replace("self.turns = 0\n", slow, 1))
    assert f"refused   {path}: timeout" in check_door(path, "--wall_seconds=0.5")


def check_door(path, *arguments):
    return door("check_env", path, "--unsafe_subprocess", *arguments).stdout


def test_an_unknown_flag_or_setting_is_refused(folder):
    assert door("check_env", folder, "--settings=games").returncode != 0
    assert door("check_env", folder, "--setting=chess").returncode != 0


def test_bytes_that_are_no_text_are_a_syntax_refusal(tmp_path, crew):
    path = tmp_path / "x.py"
    path.write_bytes(b"\xff\xfe\x00class AEnv: pass")
    (verdict,) = check_env.check([path], "auto", crew)
    assert verdict.finding.reason == "syntax"


def test_an_empty_folder_says_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no"):
        check_env.expand([str(tmp_path)])


def test_a_file_named_twice_is_checked_once(folder):
    paths = [str(folder), str(folder / "good.py")]
    assert len(check_env.expand(paths)) == 3


def by_keyboard(crew, setting, source, lines, hint=False):
    shown, typed = [], iter(lines)
    reward = play.play(
        source, domains.get(setting), crew, 4, hint, lambda: next(typed, None), shown.append
    )
    return reward, shown


def test_a_person_can_win_with_the_hint_shown(crew):
    _, shown = by_keyboard(crew, "compact", broken_programs.COMPACT, [], hint=True)
    numbers = shown[0].removeprefix("total [").removesuffix("]").split(",")
    total = sum(map(int, numbers))
    assert shown[1] == f"HINT: the first two make {int(numbers[0]) + int(numbers[1])}"
    reward, shown = by_keyboard(crew, "compact", broken_programs.COMPACT, ["1", str(total)])
    assert reward == 1.0 and "reward 1.0" in shown[-1]


def test_a_person_can_use_tools(crew):
    _, shown = by_keyboard(crew, "tool_use", broken_programs.TOOLS, [])
    room = shown[0].split("Light in the ")[1].split(",")[0]
    call = f'call switch_on {{"room": "{room}"}}'
    _, shown = by_keyboard(crew, "tool_use", broken_programs.TOOLS, [call, "answer done"])
    assert "The lamp is on." in shown[1] and "pending" in shown[2]


def test_a_person_hears_of_faults_and_of_the_end_of_turns(crew):
    _, shown = by_keyboard(crew, "games", broken_programs.GAME, ["1", "2", "3", "4"])
    assert shown[-1] == "The 3 turns are used up; the episode counts 0."
    crash = broken_programs.GAME.replace("self.turns += 1", "1 / 0")
    _, shown = by_keyboard(crew, "games", crash, ["1"])
    assert shown[-1].startswith("The environment failed: ZeroDivisionError")


class ScriptedPlayer:
    """Says the lines it was given, as the setting writes them; keeps what it was shown."""

    def __init__(self, setting, lines):
        self._domain, self._lines, self.shown, self.tools = domains.get(setting), lines, [], []

    def act(self, observation, tools=None):
        self.shown.append(observation)
        self.tools.append(tools)
        line = self._lines.pop(0)
        return line or "", line and play.as_action(line, self._domain)

    def hint(self, source):
        return f"the program has {len(source)} characters", ""


def by_player(crew, setting, source, lines, **options):
    player, shown = ScriptedPlayer(setting, lines), []
    reward = play.play(
        source, domains.get(setting), crew, 4, options.pop("hint", False), lambda: "1",
        shown.append, player, **options,
    )  # fmt: skip
    return player, reward, shown


def test_a_policy_sees_what_a_person_sees_and_plays_to_the_end(crew):
    player, _, shown = by_player(crew, "compact", broken_programs.COMPACT, ["1", None], hint=True)
    assert player.shown[:1] == ["\n".join(shown[:2])] and shown[1].startswith("HINT: the first two")
    numbers = shown[0].removeprefix("total [").removesuffix("]").split(",")
    total = str(sum(map(int, numbers)))
    _, reward, shown = by_player(crew, "compact", broken_programs.COMPACT, [total])
    assert reward == 1.0 and shown[1] == f"POLICY: {total}"


def test_a_policy_is_told_the_tools_once_and_may_leave_the_play(crew):
    lines = ['call set_level {"level": 3}', None]
    player, reward, shown = by_player(crew, "tool_use", broken_programs.TOOLS, lines)
    assert len(player.tools[0]) == 2 and player.tools[1] is None
    assert reward is None and shown[-1].startswith("The policy is out of the play")


def test_a_policy_writes_the_hint_and_the_person_plays(crew):
    source = broken_programs.COMPACT
    file = f'"""Add.\n\nfamily: total\nsetting: compact\n"""\n\n{source}'
    player, _, shown = by_player(crew, "compact", file, [], writes_hint=True)
    assert shown[1] == f"HINT: the program has {len(source)} characters"
    assert player.shown == [] and "POLICY" not in "".join(shown)


def test_a_program_cannot_steer_the_terminal():
    assert play.clean("a\x1b[2Jb\r\n\tc\x07") == "a[2Jb\n\tc"
