"""No hint passes the gate that gives the instance away, and every refusal has a name."""

import fakes
import pytest

from spade_jax import hint

CONFIG = hint.HintConfig(max_words=5)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "none"),
        ("", "empty"),
        (" \n\t", "empty"),
        ("one two three four five six", "too_long"),
        ("try ```x```", "fence"),
        ("it is 7", "leaks_answer"),
        ("it is odd", ""),
        ("one two three four five", ""),
    ],
)
def test_the_gate_names_why_a_hint_is_refused(text, reason):
    verdict = hint.judge(text, ("7",), CONFIG)
    assert verdict.reason == reason and (verdict.hint is None) == bool(reason)
    assert reason == "" or reason in hint.REASONS


def test_a_hint_is_shown_without_the_space_around_it():
    assert hint.judge("  add them up \n", (), CONFIG).hint == "add them up"


@pytest.mark.parametrize("text", ["7", "x=7", "(7)", "is 7.", "3+4=7!", "a 7\nb", "-7", "7, 8"])
def test_an_answer_stands_there_as_a_whole_word(text):
    assert hint.holds(text, "7")


@pytest.mark.parametrize("text", ["17", "70", "x7", "7th", "2.7", "7.5", "", "seven"])
def test_an_answer_is_not_found_inside_another_word(text):
    assert not hint.holds(text, "7")


@pytest.mark.parametrize(
    ("text", "secret", "found"),
    [
        ("go NORTH  east", "north\neast", True),  # case and white space do not hide it
        ("the list [1, 2] wins", "[1, 2]", True),
        ("a+b", "a.b", False),  # no pattern, but text
        ("anything", "", False),
        ("anything", "  ", False),
        ("an \u00e9t\u00e9 away", "t", False),
    ],
)
def test_secrets_are_texts(text, secret, found):
    assert hint.holds(text, secret) == found


def test_any_of_several_secrets_refuses():
    assert hint.judge("press b", ("a", "b"), CONFIG).reason == "leaks_answer"
    assert hint.judge("press b", ("a", "c"), CONFIG).reason == ""


def write(answers):
    """Let a policy that gives these answers in order write hints for three environments."""
    answers = iter(answers)
    policy = fakes.Policy(lambda prompt, seed: next(answers))
    done, refusals = hint.write(
        [fakes.environment(n) for n in range(3)],
        lambda environment: fakes.encode(f"hint for {environment.uid}"),
        policy.generate,
        fakes.text_of,
        [[10, 11], [20, 21], [30, 31]],
        CONFIG,
    )
    return [environment.hint for environment in done], refusals, policy.calls


def test_a_refused_hint_is_asked_once_more_from_its_second_seed():
    hints, refusals, calls = write(["add", "```", "cut...", "count", "look"])
    assert hints == ["add", "count", "look"]
    assert refusals == {"fence": 1, "none": 1}
    assert [seeds for _, seeds in calls] == [[10, 20, 30], [21, 31]]
    assert [fakes.decode(ids) for ids in calls[1][0]] == ["hint for 1", "hint for 2"]


def test_a_hint_refused_twice_is_left_out_and_both_refusals_count():
    hints, refusals, calls = write(["add", "", "look", "```"])
    assert hints == ["add", None, "look"]
    assert refusals == {"empty": 1, "fence": 1} and len(calls) == 2


def test_a_setting_without_words_is_refused():
    with pytest.raises(ValueError, match="hint.max_words=0"):
        hint.HintConfig(max_words=0)
