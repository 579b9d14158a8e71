"""The base class of compact questions: replies, tries, answers cut from text, and the seed."""

import pathlib
import random
import runpy
import time

import pytest

import spade_jax

SOURCE = pathlib.Path(spade_jax.__path__[0]) / "domains/guest/qa_env.py"
guest = runpy.run_path(str(SOURCE))


class SortEnv(guest["QAEnv"]):
    def task(self, rng):
        xs = rng.sample(range(10, 100), 3)
        return ("sort", xs), sorted(xs), sorted(xs)[:-1]


class BareEnv(guest["QAEnv"]):
    def task(self, rng):
        return "six times  seven\n", 42


def test_seed_settles_the_task():
    first, second, other = SortEnv(), SortEnv(), SortEnv()
    assert first.reset(seed=3) == second.reset(3)
    assert first.reset(seed=3) != other.reset(seed=4)
    assert first.solution() == second.solution()


def test_missing_seed_comes_from_the_process_generator():
    environment = SortEnv()
    random.seed(5)
    first = environment.reset()
    random.seed(5)
    assert environment.reset(seed=None) == first
    assert environment.reset() != first


def test_lists_read_as_words_and_hint_is_optional():
    environment = SortEnv()
    question, info = environment.reset(0)
    words = question.split()
    assert words[0] == "sort" and info == {}
    assert environment.solution() == " ".join(sorted(words[1:]))
    assert environment.hint() == " ".join(sorted(words[1:])[:-1])
    bare = BareEnv()
    assert bare.reset(0) == ("six times seven", {})
    assert bare.hint() is None


def test_right_answer_wins():
    environment = BareEnv()
    environment.reset(0)
    assert environment.step("\\boxed{42}") == ("Correct.", 1.0, True, False, {})


def test_wrong_answers_use_up_the_turns_and_tell_nothing():
    environment = BareEnv()
    environment.reset(0)
    assert environment.step("41") == ("Wrong. Try again: six times seven", 0.0, False, False, {})
    assert environment.step("\\boxed{}") == ("Wrong.", 0.0, False, True, {})
    environment.reset(1)
    assert environment.step("")[3] is False


@pytest.mark.parametrize("given", [1, 3])
def test_turns_can_be_set(given):
    environment = BareEnv(max_turns=given)
    environment.reset(0)
    assert [environment.step("no")[3] for _ in range(given)] == [False] * (given - 1) + [True]
    assert BareEnv(max_turns=None).max_turns == BareEnv.max_turns == 2


@pytest.mark.parametrize(
    ("action", "answer"),
    [
        ("  7 ", "7"),
        ("so \\boxed{7}", "7"),
        ("\\boxed{1} no, \\boxed{7} it is", "7"),
        ("\\boxed{a{b}c}", "a{b}c"),
        ("\\boxed{\\boxed{7}}", "7"),
        ("\\boxed{7} or \\boxed{8", "7"),
        ("\\boxed{8", "\\boxed{8"),
        ("} \\boxed{ 7 } {", "7"),
        ("{ \\boxed{7}", "7"),
        ("", ""),
    ],
)
def test_final_answer_is_the_last_whole_box(action, answer):
    assert guest["final_answer"](action) == answer


def test_long_actions_are_read_in_linear_time():
    started = time.process_time()
    guest["final_answer"]("\\boxed{" * 14_000)
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize(
    ("given", "answer", "same"),
    [
        ("a  b\n", "a b", True),
        ("A", "a", False),
        ("ab", "a b", False),
        ("07", "7", True),
        ("+7", "7", True),
        ("7.0", "7", False),
        ("1_0", "10", False),
        ("-3", "-3", True),
        ("9" * 5000, "7", False),
        ("", "0", False),
    ],
)
def test_answers_compare_as_text_or_as_whole_numbers(given, answer, same):
    assert guest["same_answer"](given, answer) is same


def test_misuse_is_told():
    with pytest.raises(NotImplementedError, match="task"):
        guest["QAEnv"]().reset(0)
    with pytest.raises(RuntimeError, match="reset"):
        BareEnv().step("42")
