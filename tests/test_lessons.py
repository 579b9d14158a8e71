"""Lessons teach writing and playing from what seed environments answer; sessions are closed."""

import fakes
import numpy as np
import pytest

from spade_jax import lessons, records, seed_files

CONFIG = lessons.LessonConfig(variants=6, plays=4, hinted_share=0.5)


def families(count=2):
    return [
        seed_files.SeedFile(
            path=f"{n}.py", summary="", family=f"family{n}", skill=records.SKILLS[n],
            setting="compact", kind="single_turn", split="train", knobs={4: (3, 4, 5)},
            code=f"class Guess{n}Env(QAEnv):\n    size = 4\n",
        )
        for n in range(count)
    ]  # fmt: skip


def build(sandbox, config=CONFIG, processes=3, seed=0, count=2):
    rng = np.random.default_rng(seed)
    return lessons.build(families(count), sandbox.open, config, rng, processes)


def test_each_distinct_variant_is_written_once_and_played_by_its_instances():
    made = build(fakes.Sandbox())
    writing = [lesson for lesson in made if lesson.role == records.DESIGNER]
    playing = [lesson for lesson in made if lesson.role == records.AGENT]
    replies = [lesson.reply for lesson in writing]
    assert len(set(replies)) == len(replies) <= 6  # three sizes of each of two families
    assert len(playing) == 4 * len(writing)
    assert all(reply.startswith("```python\nclass Guess") for reply in replies)
    assert all(reply.endswith("\n```") for reply in replies)
    words = {3: "easy", 4: "medium", 5: "hard"}
    for lesson in writing:
        assert lesson.difficulty == words[int(lesson.reply.split("size = ")[1][0])]


def test_a_play_shows_the_hint_to_some_and_the_working_and_answer_to_all():
    playing = [lesson for lesson in build(fakes.Sandbox()) if lesson.role == records.AGENT]
    for lesson in playing:
        working, boxed = lesson.reply.rsplit(" ", 1)
        digit = int(boxed.removeprefix("\\boxed{").removesuffix("}"))
        assert working == ("It is even." if digit % 2 == 0 else "It is odd.")
        assert lesson.hint in (None, working) and lesson.prompt == "Guess my digit."
    shown = sum(lesson.hint is not None for lesson in playing)
    assert 0 < shown < len(playing)


def test_lessons_do_not_depend_on_how_many_processes_there_are():
    few, many = fakes.Sandbox(), fakes.Sandbox()
    assert build(few, processes=1) == build(many, processes=64)
    assert few.most_alive == 1 and few.alive() == many.alive() == []


def test_sessions_are_closed_when_a_seed_environment_fails():
    def fail(request):
        raise ArithmeticError("hint")

    sandbox = fakes.Sandbox(overrides={"hint": fail})
    with pytest.raises(RuntimeError, match="'family0' failed.*ArithmeticError: hint.*check_env"):
        build(sandbox)
    assert len(sandbox.sessions) == 3 and sandbox.alive() == []


def test_a_process_that_the_sandbox_lost_is_asked_once_more():
    calm, unlucky = fakes.Sandbox(), fakes.Sandbox(lose=lambda s, b: 7 if s == 1 else None)
    assert build(unlucky) == build(calm)
    assert len(unlucky.sessions) == len(calm.sessions) + 1 and unlucky.alive() == []
    gone = fakes.Sandbox(lose=lambda session, batch: 0)
    with pytest.raises(RuntimeError, match="lost the process.*'family0' twice.*doctor"):
        build(gone)


def test_a_seed_environment_without_solution_is_named():
    sandbox = fakes.Sandbox(overrides={"solution": lambda r: {"present": False, "solution": None}})
    with pytest.raises(RuntimeError, match=r"'family0' has no solution\(\)"):
        build(sandbox)
    assert sandbox.alive() == []


@pytest.mark.parametrize(
    ("working", "text"),
    [
        ("a 1", "a 1 \\boxed{7}"),
        (" a \n", "a \\boxed{7}"),
        (None, "\\boxed{7}"),
        ("", "\\boxed{7}"),
    ],
)
def test_a_reply_is_the_working_and_the_boxed_answer(working, text):
    assert lessons.reply_text(working, "7") == text


@pytest.mark.parametrize(("field", "value"), [("variants", 0), ("plays", 0), ("hinted_share", 2.0)])
def test_a_setting_that_cannot_work_is_refused(field, value):
    with pytest.raises(ValueError, match=f"{field}={value}"):
        lessons.LessonConfig(**{field: value})
