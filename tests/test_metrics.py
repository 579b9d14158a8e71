"""Each iteration stands once in the metrics, whatever killed the run."""

import ast
import json
import math
import pathlib
import re

import numpy as np
import pytest
from tensorboardX.proto import event_pb2

from spade_jax import metrics


def iterations(workdir):
    return [line["iteration"] for line in metrics.read_metrics(workdir / "metrics.jsonl")]


def write(workdir, resume_step, numbers, value=0.5):
    writer = metrics.MetricWriter(workdir, resume_step)
    for number in numbers:
        writer.write(number, {"rollout/win_rate": value}, f"sample {number} {value}")
    writer.close()


def events(workdir):
    for path in sorted((workdir / "tensorboard").iterdir()):
        content = path.read_bytes()
        while content:
            size = int.from_bytes(content[:8], "little")
            yield event_pb2.Event.FromString(content[12 : 12 + size])
            content = content[16 + size :]


def test_lines_past_the_checkpoint_are_written_again(tmp_path):
    write(tmp_path, -1, range(5))
    write(tmp_path, 2, range(3, 7), value=0.25)
    assert iterations(tmp_path) == list(range(7))
    lines = metrics.read_metrics(tmp_path / "metrics.jsonl")
    assert [line["rollout/win_rate"] for line in lines] == [0.5] * 3 + [0.25] * 4
    assert (tmp_path / "samples/000004.txt").read_text() == "sample 4 0.25\n"


def test_samples_past_the_checkpoint_are_removed(tmp_path):
    write(tmp_path, -1, range(3))
    metrics.MetricWriter(tmp_path, 0).close()
    assert [path.name for path in (tmp_path / "samples").iterdir()] == ["000000.txt"]


def test_new_run_forgets_the_old_one(tmp_path):
    write(tmp_path, -1, range(3))
    write(tmp_path, -1, range(2))
    assert iterations(tmp_path) == [0, 1]


def test_torn_last_line_is_dropped(tmp_path):
    write(tmp_path, -1, range(2))
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"iteration": 2, "rollout/wi')
    write(tmp_path, 2, [3])
    assert iterations(tmp_path) == [0, 1, 3]


def test_kill_during_clean_up_leaves_the_old_file(tmp_path):
    write(tmp_path, -1, range(3))
    (tmp_path / "metrics.jsonl.partial").write_text("{")
    write(tmp_path, 1, [2])
    assert iterations(tmp_path) == [0, 1, 2]


@pytest.mark.parametrize("row", ["rubbish", "[1]", '{"loss": 1}', '{"iteration": 0}'])
def test_damaged_line_in_the_middle_is_named(tmp_path, row):
    lines = ['{"iteration": 0}', row, '{"iteration": 2}']
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match="metrics.jsonl:2 is not"):
        metrics.MetricWriter(tmp_path, 2)


def test_iteration_must_rise(tmp_path):
    writer = metrics.MetricWriter(tmp_path, -1)
    writer.write(3, {})
    with pytest.raises(ValueError, match="iteration 3 come after those of 3"):
        writer.write(3, {})
    writer.close()


def test_unknown_name_is_refused_with_the_nearest_one(tmp_path):
    with pytest.raises(KeyError, match="nearest is 'rollout/win_rate'"):
        metrics.check({"rollout/winrate": 1.0})
    with pytest.raises(KeyError, match="METRICS"):
        metrics.check({"env/skill_a/b/win_rate": 1.0})


def test_every_name_that_the_code_spells_out_is_known():
    groups = "|".join({name.split("/")[0] for name in metrics.METRICS})
    spelled = set()
    for path in pathlib.Path(metrics.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if re.fullmatch(rf"({groups})/[a-z0-9_/]*[a-z0-9]", node.value):
                    spelled.add(node.value)
    for name in spelled:
        metrics.meaning(name)


def test_pattern_names_take_one_word():
    assert metrics.meaning("count/refused_no_class") == metrics.METRICS["count/refused_*"]
    name = f"env/skill_{metrics.slug('Mathematical Reasoning')}/win_rate"
    assert name == "env/skill_mathematical_reasoning/win_rate"
    assert metrics.check({name: 1}) == {name: 1}


def test_numbers_become_strict_json(tmp_path):
    writer = metrics.MetricWriter(tmp_path, -1)
    given = {"train/loss": np.float32(0.5), "train/kl": math.nan, "count/drafts": np.int64(3)}
    writer.write(0, given)
    writer.close()
    line = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(line) == {
        "iteration": 0,
        "count/drafts": 3,
        "train/kl": None,
        "train/loss": 0.5,
    }


def test_value_that_is_no_number_is_refused():
    with pytest.raises(TypeError, match="train/loss"):
        metrics.check({"train/loss": "low"})


def test_tensorboard_holds_the_scalars_and_the_restart(tmp_path):
    write(tmp_path, -1, range(2))
    write(tmp_path, 0, [1])
    found = list(events(tmp_path))
    scalars = [
        event.step
        for event in found
        if event.summary.value[:1] and event.summary.value[0].tag == "rollout/win_rate"
    ]
    assert scalars == [0, 1, 1]
    assert any(event.session_log.status == 1 and event.step == 1 for event in found)


def test_wilson_interval_by_hand():
    # n=100, p=0.8: (0.8 + 0.0192073) / 1.0384146 = 0.7889020,
    # 1.959964 / 1.0384146 * sqrt(0.0016 + 0.00009604) = 0.0777311.
    got = metrics.interval(80, 100)
    assert got.mean == 0.8
    assert math.isclose(got.low, 0.711171, abs_tol=1e-6)
    assert math.isclose(got.high, 0.866633, abs_tol=1e-6)
    assert metrics.interval(0, 10).low == 0 and metrics.interval(0, 10).high > 0.2
    assert metrics.interval(0, 0).half_width == 0.5
    with pytest.raises(ValueError):
        metrics.interval(3, 2)


def test_progress_line_reads_well():
    line = metrics.progress_line(
        2,
        15,
        75.3,
        {
            "env/validity": 0.75,
            "count/drafts": 8,
            "count/accepted": 6,
            "rollout/win_rate": 0.412,
            "env/regret": 0.0312,
            "env/regret_se": 0.011,
            "env/learnable": 0.5,
            "eval/held_out": 0.31,
            "eval/held_out_half_width": 0.025,
            "time/design": 3.21,
            "time/rollout": 8.0,
            "time/iteration": 12.0,
        },
    )
    assert line == (
        " 3/15  1:15  valid 75% (6/8)  win 41%  regret +0.031 ± 0.011  learnable 50%  "
        "held-out 31% ± 2.5  [design 3.2 rollout 8.0 s]"
    )


# Plays whose prompt does not fit the context are left out of win rates, and so must be told.
def test_the_progress_line_tells_of_plays_that_had_no_room():
    assert "too long" not in metrics.progress_line(0, 2, 0.0, {"rollout/too_long": 0.0})
    line = metrics.progress_line(0, 2, 0.0, {"rollout/too_long": 1.0})
    assert line == "1/2  0:00  too long 100% (see rollout.context_tokens)"


def test_the_table_for_people_is_the_one_in_the_code():
    text = pathlib.Path(metrics.__file__).with_name("METRICS.md").read_text()
    assert text.endswith(metrics.markdown()), "write it anew from metrics.markdown()"
