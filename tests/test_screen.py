"""The screen by the policy: who is asked, what is refused, what it costs."""

import fakes
import pytest

from experiments import scripted_study
from spade_jax import generation, records, safeguards, screen, settings, story, validate


@pytest.mark.parametrize(
    ("reply", "refused"),
    [
        ("It can. \\boxed{yes}", False),
        ("\\boxed{ Yes } or \\boxed{no}? No: \\boxed{no}", True),  # the last verdict counts
        ("\\boxed{no}, or else \\boxed{ Yes }", False),
        ("\\boxed{maybe} \\boxed{yes}", False),  # no verdict but a box
        ("It can.", True),
        ("", True),
    ],
)
def test_the_last_boxed_verdict_decides_and_none_is_a_no(reply, refused):
    (found,) = screen.judge(
        [fakes.environment()],
        lambda environment: (1,),
        lambda prompts, seeds: [fakes.reply(reply)] * len(prompts),
        fakes.text_of,
        [0],
    )
    assert (found is not None) == refused
    assert found is None or found.reason == "unsolved" in validate.CHECKS


def test_a_program_that_leaves_no_room_for_a_verdict_is_nobodys_fault():
    (found,) = screen.judge(
        [fakes.environment()],
        lambda environment: (1,),
        lambda prompts, seeds: [records.Reply(ids=(), logps=(), stopped=False)],
        fakes.text_of,
        [0],
    )
    assert found.reason == screen.NOBODY


def test_nobody_is_asked_about_nothing():
    assert screen.judge([], None, None, None, []) == []


def episode(n, value=0.0, fault=""):
    return records.Episode(
        environment=n, seed_index=0, play=0, arm=1, seed=0, turns=(), value=value, fault=fault,
        detail="", truncated=False, observation="",
    )  # fmt: skip


def test_an_environment_must_be_won_and_faults_of_ours_say_nothing():
    episodes = [
        episode(0, 1.0), episode(0), episode(0, 0.2),  # two wins
        episode(1, 1.0), episode(1, -1.0),  # one
        episode(2, fault="environment"), episode(2, 1.0),  # one, and a crash
        episode(3, fault="infra"), episode(3, fault="too_long"),  # nothing is known
    ]  # fmt: skip
    for least, reasons in (
        (1, [None, None, None, "infra"]),
        (2, [None, "unsolved", "unsolved", "infra"]),
    ):
        found = screen.count_wins(episodes, 4, screen.ScreenConfig(least_wins=least))
        assert [f and f.reason for f in found] == reasons
    # what nobody could judge has the name that validation gives it: such drafts are masked
    assert screen.NOBODY == validate.INFRA


KINDS = ("fair", "unwinnable")


def mixed(text, rng):
    """Write a fair environment or one that nobody wins, by chance."""
    return scripted_study.designer(text, rng, KINDS[rng.integers(2)])


def player(text, rng):
    """Win whatever is fair; answer rightly when asked about a program."""
    if "Can a good player win it?" in text:
        return "\\boxed{no}" if '"unwinnable"' in text else "\\boxed{yes}"
    return scripted_study.agent(text, rng, lambda: 50.0)


def write(designer=mixed, **screening):
    """Let the scripted designer write a generation of twelve and screen it."""
    config = scripted_study.run_config(4, screen=screen.ScreenConfig(max_tokens=64, **screening))
    progress, world = scripted_study.start(config, designer, player)
    written = generation.write(progress, world, config, story.Clock(), safeguards.Answer())
    archived = progress.pool.archive
    kinds = [
        scripted_study.Session(archived.read(number).source).kind for number in range(len(archived))
    ]
    return progress, written, kinds


def test_without_a_screen_what_nobody_wins_enters_the_pool():
    _, written, kinds = write()
    assert set(kinds) == set(KINDS) and len(kinds) == 12
    assert written.screening == screen.Cost(processes=2 * 12)  # two examine a draft
    assert {verdict.checks["unsolved"] for verdict in written.verdicts} == {"off"}


@pytest.mark.parametrize(("by", "replies"), [("judgement", 12), ("play", 12 * 2 * 3)])
def test_what_the_policy_cannot_solve_is_refused_and_waits_for_its_reward(by, replies):
    progress, written, kinds = write(by=by, plays=3)
    assert set(kinds) == {"fair"} and 0 < len(kinds) < 12
    # by play: 12 drafts, 2 seeds, 3 plays of one turn each
    cost = screen.Cost(screened=12, refused=12 - len(kinds), replies=replies)
    cost.processes = 2 * 12 + (2 * 12 if by == "play" else 0)  # two examine a draft; 2 seeds
    assert written.screening == cost
    reasons = [waiting.reason for waiting in progress.pool.waiting]
    assert reasons.count("unsolved") == 12 - len(kinds) and reasons.count("") == len(kinds)
    marks = [verdict.checks["unsolved"] for verdict in written.verdicts]
    assert marks.count("fail") == 12 - len(kinds) and marks.count("pass") == len(kinds)


def test_a_hint_that_may_not_be_shown_leaves_plays_without_it():
    def leaking(text, rng):
        return scripted_study.designer(text, rng, "leak")

    _, written, kinds = write(leaking, by="play", plays=2)
    assert kinds == ["leak"] * 12
    cost = screen.Cost(screened=12, refused=0, replies=12 * 2 * 2)
    cost.processes = 2 * 12 + 2 * 12 + 2 * 12  # examined, asked for hints, played without
    assert written.screening == cost


def test_a_judgement_that_fits_no_row_is_refused_at_the_door():
    with pytest.raises(ValueError, match="screen.max_tokens=256"):
        settings.RunConfig(screen=screen.ScreenConfig(by="judgement", max_tokens=256))
    for field in ("max_tokens", "plays", "least_wins"):
        with pytest.raises(ValueError, match=f"screen.{field}=0"):
            screen.ScreenConfig(**{field: 0})
