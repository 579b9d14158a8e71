"""No hint passes the gate that gives the instance away, and every refusal has a name."""

import fakes
import pytest

from spade_jax import disguises, hint

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


@pytest.mark.parametrize("text", ["17", "70", "x7", "7th", "2.7", "7.5", "", "seventh"])
def test_an_answer_is_not_found_inside_another_word(text):
    assert not hint.holds(text, "7")


@pytest.mark.parametrize(
    ("text", "secret", "found"),
    [
        ("go NORTH  east", "north\neast", True),  # case and white space do not hide it
        ("the list [1, 2] wins", "[1, 2]", True),
        ("axb", "a.b", False),  # no pattern, but text
        ("anything", "", False),
        ("anything", "  ", False),
        ("an \u00e9t\u00e9 away", "t", False),
    ],
)
def test_secrets_are_texts(text, secret, found):
    assert hint.holds(text, secret) == found


@pytest.mark.parametrize("text", ["07", "7.0", "7.", "+7", "7 %", "x = 7.00", "it is _7_", "**7**"])
@pytest.mark.parametrize("secret", ["7", "\\boxed{7}", "\\boxed{\\text{7}}", "<answer>7</answer>"])
def test_a_number_is_found_by_its_value_boxed_or_not(text, secret):
    assert hint.judge(f"the answer is {text}", (secret,), hint.HintConfig()).reason


@pytest.mark.parametrize(
    ("text", "secret", "found"),
    [
        ("3, 1, 2", "3 1 2", True),
        ("first 3-1-2, then rest", "[3, 1, 2]", True),
        ("3 and 1 and 2", "3 1 2", False),
        ("13 1 2", "3 1 2", False),
        ("write cab", "c a b", True),  # letters spelled together, or apart
        ("write c-a-b", "cab", True),
        ("at a time", "a t", False),  # too short to tell from a word
        ("1 2 9", "12", False),
        ("about 1,000 steps", "1000", True),
        ('turn "North"!', "\\boxed{north}", True),
        ("northern", "north", False),
        ("press <.", "<", True),  # a secret of signs alone
        ("a < b", "\\boxed{<}", True),
        ("a <= b", "<", False),
        ("9" * 40, "9" * 40, True),
        ("7e9999999", "7", False),
    ],
)
def test_signs_between_words_hide_nothing(text, secret, found):
    assert (hint.judge(text, (secret,), hint.HintConfig()).reason != "") == found


@pytest.mark.parametrize("text", ["start north", "then \\boxed{east}", "north, east, north"])
def test_each_line_of_a_plan_is_an_action(text):
    plan = "\\boxed{north}\n\\boxed{east}\n\\boxed{north}"
    assert hint.judge(text, (plan,), hint.HintConfig()).reason == "leaks_answer"
    assert hint.judge("go around the wall", (plan,), hint.HintConfig()).reason == ""


def test_two_boxes_of_one_line_are_two_actions():
    assert hint.actions("\\boxed{a}, then \\boxed{b}")[1:] == ["a", "b"]


def test_one_endless_word_is_too_long():
    assert hint.judge("x" * 2001, (), hint.HintConfig()).reason == "too_long"


def test_tries_are_what_a_player_might_take_from_a_hint():
    assert hint.tries("The answer is 3, 1, 2.")[:4] == [
        "The answer is 3, 1, 2", "3, 1, 2", "3 1 2", "2",
    ]  # fmt: skip
    assert hint.tries("say 'open sesame' or \\boxed{x y}")[1:3] == ["x y", "open sesame"]
    assert hint.tries("add 12") == ["add 12", "12", "add"]
    assert hint.tries(" ...\n") == []
    long = hint.tries(" ".join(f"w{n}" for n in range(90)))
    assert len(long) == hint.MAX_TRIES and long[1] == "w89"


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


def test_an_environment_whose_hint_is_refused_twice_is_marked():
    answers = iter(["add", "", "look", "```"])
    done, _ = hint.write(
        [fakes.environment(n) for n in range(3)],
        lambda environment: (1,),
        fakes.Policy(lambda prompt, seed: next(answers)).generate,
        fakes.text_of,
        [[0, 1]] * 3,
        CONFIG,
    )
    assert [environment.hint_failed for environment in done] == [False, True, False]


def test_a_hint_refused_twice_is_left_out_and_both_refusals_count():
    hints, refusals, calls = write(["add", "", "look", "```"])
    assert hints == ["add", None, "look"]
    assert refusals == {"empty": 1, "fence": 1} and len(calls) == 2


def test_a_setting_without_words_is_refused():
    with pytest.raises(ValueError, match="hint.max_words=0"):
        hint.HintConfig(max_words=0)


@pytest.mark.parametrize(
    ("text", "secret", "found"),
    [
        ("it is seven", "7", True),
        ("it is Forty-Two.", "\\boxed{42}", True),
        ("one hundred and seven", "107", True),
        ("one hundred seven", "107", True),
        ("twelve thousand three hundred", "12300", True),
        ("three, one, two", "3 1 2", True),
        ("forty", "42", False),
        ("seventeen", "7", False),
        ("read htron from its end", "north", True),
        ("read 4321", "1234", True),
        ("read 21", "12", False),  # too short to tell from a number of its own
        ("level", "level", True),
        ("decode bm9ydGg= now", "north", True),
        ("decode bm9ydGg now", "<answer>north</answer>", True),
        ("decode BM9YDGG= now", "north", False),  # base64 has two cases
        ("hex 6e6f727468", "\\boxed{north}", True),
        ("add one to 41", "42", False),  # a sum is not found
    ],
)  # fmt: skip
def test_disguised_answers_are_found(text, secret, found):
    assert hint.holds(text, secret) == found


@pytest.mark.parametrize("number", [0, 9, 10, 13, 20, 21, 99, 100, 101, 999, 1000, 1001, 999_999])
def test_numbers_are_spelt_in_words_that_read_back(number):
    small = {word: n for n, word in enumerate(disguises._SMALL)}
    tens = {word: 10 * n for n, word in enumerate(disguises._TENS) if n > 1}
    for form in disguises.in_words([str(number)]):
        total = part = 0
        for word in form:
            if word in small | tens:
                part += (small | tens)[word]
            elif word == "hundred":
                part *= 100
            elif word == "thousand":
                total, part = total + 1000 * part, 0
        assert total + part == number
