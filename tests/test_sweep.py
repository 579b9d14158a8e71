"""A sweep's points keep their names, a bad one stops all, and a killed sweep goes on."""

import csv
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from launch import points
from spade_jax import config, curves, gather, settings, sweep

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIX = """
from spade_jax import sweep
def get_config():
    rates = sweep.values("learn.learning_rate", [0.5, 0.25, 0.125])
    return sweep.product(rates, sweep.seeds(2))
"""


def door(folder, *flags, sweep_file=SIX):
    (folder / "points.py").write_text(sweep_file)
    return [
        sys.executable, "-m", "launch.sweep", f"--config={ROOT}/experiments/quickstart.py",
        f"--sweep={folder}/points.py", f"--workdir={folder}/runs", "--config.iterations=3",
        "--program=tests.fake_trainer", *flags,
    ]  # fmt: skip


def ask(folder, *flags, sweep_file=SIX):
    line = door(folder, *flags, sweep_file=sweep_file)
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300)


def wait_for(condition):
    deadline = time.monotonic() + 120
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def test_axes_combine():
    a, b = sweep.values("a", [1, 2]), sweep.values("b", ["x", "y"])
    assert sweep.product(a, b) == [
        (("a", 1), ("b", "x")), (("a", 1), ("b", "y")),
        (("a", 2), ("b", "x")), (("a", 2), ("b", "y")),
    ]  # fmt: skip
    assert sweep.zipped(a, b) == [(("a", 1), ("b", "x")), (("a", 2), ("b", "y"))]
    assert sweep.chain(a, sweep.seeds(2, first=5)) == [
        (("a", 1),), (("a", 2),), (("seed", 5),), (("seed", 6),),
    ]  # fmt: skip
    with pytest.raises(sweep.SweepError, match=r"\[2, 3\] points"):
        sweep.zipped(a, sweep.seeds(3))


def test_random_points_come_again_and_more_of_them_only_adds():
    draws = {
        "a": sweep.log_uniform(1e-4, 1e-2), "b": sweep.integers(1, 3), "c": sweep.choice("xy"),
        "d": sweep.uniform(2, 3),
    }  # fmt: skip
    five = sweep.random(draws, 5, seed=1)
    assert sweep.random(draws, 3, seed=1) == five[:3] and sweep.random(draws, 5, seed=2) != five
    for point in map(dict, five):
        assert 1e-4 <= point["a"] < 1e-2 and point["b"] in (1, 2, 3) and 2 <= point["d"] < 3


def test_the_name_of_a_point_depends_on_its_overrides_only():
    point = (("a.b", 0.001), ("seed", 1))
    assert sweep.identifier(point) == sweep.identifier(point[::-1]) == "156cb3a357"
    assert sweep.identifier((("a.b", 0.001), ("seed", 2))) != sweep.identifier(point)
    assert sweep.identifier((("a", 1),)) != sweep.identifier((("a", True),))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "not a list of points"),
        (sweep.product(sweep.seeds(1), sweep.seeds(1)), "seed more than once"),
        (sweep.chain(sweep.seeds(2), sweep.seeds(1)), "point 2 .seed=0. stands"),
        (sweep.values("a", [object()]), "plain values only"),
    ],
)
def test_points_that_would_hide_each_other_are_refused(given, words):
    with pytest.raises(sweep.SweepError, match=words):
        sweep.check(given)


UNKNOWN = """
from spade_jax import sweep
def get_config():
    return sweep.chain(sweep.seeds(1), sweep.values("learn.learning_rat", [0.1]))
"""
TWICE = """
from spade_jax import sweep
def get_config():
    return sweep.product(sweep.seeds(1), sweep.values("iterations", [2]), sweep.seeds(1))
"""


@pytest.mark.parametrize(
    ("file", "words"),
    [(UNKNOWN, "Did you mean learn.learning_rate?"), (TWICE, "seed more than once")],
)
def test_a_bad_point_stops_the_sweep_before_anything_runs(tmp_path, file, words):
    done = ask(tmp_path, sweep_file=file)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert words in done.stderr and "Nothing has been started" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_value_that_a_knob_does_not_take_is_refused():
    values = config.to_config_dict(settings.RunConfig())
    with pytest.raises(sweep.SweepError, match="learn.learning_rate='fast'"):
        points.override(values, (("learn.learning_rate", "fast"),))
    assert points.override(values, (("seed", 4),)).seed == 4 and values.seed == 0


def test_a_killed_sweep_is_continued_and_collected(tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "hold").touch()  # points stand still after their first iteration
    first = subprocess.Popen(door(tmp_path, "--parallel=2"), cwd=ROOT, stdout=subprocess.DEVNULL)
    wait_for(lambda: len(list(runs.glob("*/metrics.jsonl"))) == 2)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert ask(tmp_path, "--list").stdout.count("running") == 2  # they outlive the sweep
    assert ask(tmp_path, "--emit").stdout.count("tests.fake_trainer") == 6
    again = subprocess.Popen(
        door(tmp_path, "--parallel=2"), cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    told = again.stdout.readline() + again.stdout.readline()
    assert "0 of 6 points are done" in told and "still runs from an earlier sweep" in told
    (runs / "hold").unlink()
    told += again.communicate(timeout=120)[0]
    assert again.returncode == 0
    starts = [path.read_text().count("start") for path in runs.glob("*/starts")]
    assert starts == [1] * 6  # nobody ran twice: who was running was waited for
    done = ask(tmp_path, "--collect", "--metrics=rollout/win_rate,env/regret")
    assert "6 of 6 points done" in done.stdout
    rows = list(csv.DictReader((runs / "sweep.csv").open()))
    assert [row["learn.learning_rate"] for row in rows] == ["0.5"] * 2 + ["0.25"] * 2 + [
        "0.125"
    ] * 2
    assert [float(row["rollout/win_rate"]) for row in rows] == [1.5, 1.5, 0.75, 0.75, 0.375, 0.375]
    assert {row["state"] for row in rows} == {"done"} and {row["iterations"] for row in rows} == {
        "3"
    }
    assert "| 0.5 | 2 | 1.5 ± 0 | 0.05 ± 0.64 |" in (runs / "sweep.md").read_text()
    assert (runs / "rollout_win_rate.svg").read_text().count("<circle") == 18


def test_a_failing_point_is_told_and_the_others_run(tmp_path):
    file = "from spade_jax import sweep\ndef get_config():\n    return sweep.seeds(2, first=12)\n"
    done = ask(tmp_path, sweep_file=file)
    assert done.returncode == 1 and done.stdout.count("failed: ") == 1
    states = [
        line.split()[1] for line in ask(tmp_path, "--list", sweep_file=file).stdout.splitlines()
    ]
    assert states == ["done", "failed"]


# Values 0 and 0.2 over two seeds: mean 0.1, standard error 0.1, t quantile of one degree 12.706.
def test_seeds_are_put_together_with_a_t_interval():
    rows = [
        gather.Row(
            name=str(seed), point=(("seed", seed),), state="done",
            lines=[{"iteration": 0, "env/regret": 0.2 * seed}],
        )
        for seed in (0, 1)
    ]  # fmt: skip
    assert "| 2 | 0.1 ± 1.3 |" in gather.as_markdown(rows)


def test_a_picture_holds_every_series_and_survives_one_value():
    drawn = curves.svg({"a<b": [(1, 0.5)], "nothing": []}, title="t", x="x")
    assert "a&lt;b" in drawn and "nothing" not in drawn and drawn.count("<circle") == 1
