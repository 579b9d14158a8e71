"""The review after play: who is asked, what a play looks like, what a "no" costs and whom."""

import dataclasses
import json

import fakes
import numpy as np
import pytest

from experiments import scripted_study
from spade_jax import archive, design, loop, pool, records, review, rollout, settings, story

LONG = 100  # iterations of the run, more than are made


def episode(turns=1, row=0, **changes):
    said = tuple(
        records.Turn(
            observed_ids=(1,), reply=fakes.reply("x"), action=f"a{t}", reward=0.5, answer=f"b{t}"
        )
        for t in range(turns)
    )
    fields = {
        "environment": row, "seed_index": 0, "play": 0, "arm": records.PLAIN, "seed": 0,
        "turns": said, "value": 0.5, "fault": "", "detail": "", "truncated": False,
        "observation": "Guess.",
    }  # fmt: skip
    return records.Episode(**(fields | changes))


@pytest.mark.parametrize(
    ("reply", "unsound"),
    [
        ("\\boxed{yes}, no: \\boxed{ No }", True),  # the last verdict counts
        ("\\boxed{no}? \\boxed{yes}", False),
        ("no", False),  # no verdict costs nothing
        ("", False),
    ],
)
def test_only_a_boxed_no_is_a_no(reply, unsound):
    found = review.judge(
        [fakes.environment()],
        [episode()],
        lambda environment, play: (1,),
        lambda prompts, seeds: [fakes.reply(reply)] * len(prompts),
        fakes.text_of,
        [0],
    )
    assert found == [unsound]


def test_a_program_that_leaves_no_room_is_not_reviewed_and_counted():
    silent = records.Reply(ids=(), logps=(), stopped=False)

    class Crowded(scripted_study.World):
        """A world whose rows are full once a program and a play stand in them."""

        def generate_together(self, params, role, temperature, max_tokens):
            if role == records.AGENT:
                return lambda prompts, seeds: [silent] * len(prompts)
            return super().generate_together(params, role, temperature, max_tokens)

    player, progress, iterate = begun(0.5, world=Crowded)
    first = iterate()
    assert (first["count/review_no_room"], "count/review_replies" in first) == (12, False)
    assert not any(w.reviewed or w.penalty for w in progress.pool.waiting)
    found = review.judge(
        [fakes.environment()], [episode()], lambda *_: (1,), lambda *_: [silent], fakes.text_of, [0]
    )
    assert found == [None]


def test_nobody_is_asked_about_nothing():
    assert review.judge([], [], None, None, None, []) == []


def test_a_play_is_shown_with_its_first_turns_and_its_end():
    told = review.shown(episode(turns=7, observation="o" * 600, truncated=True)).splitlines()
    assert told[0] == "ENVIRONMENT: " + "o" * 500 + " ..."
    assert told[1:3] == ["PLAYER: a0", "ENVIRONMENT (reward 0.5): b0"]
    assert told[9:] == [
        "PLAYER: a4", "ENVIRONMENT (reward 0.5): b4", "... 2 more turns",
        "The play was cut off. It counts 0.5.",
    ]  # fmt: skip


def test_a_turn_keeps_the_beginning_of_what_answered_it():
    long = {"observation": "n" * 500, "reward": 0.0, "terminated": True, "truncated": False,
            "contract": ""}  # fmt: skip
    played, _, _ = fakes.play(lambda prompt, seed: "1")
    assert {turn.answer for e in played.episodes for turn in e.turns} == {"Not 1."}
    sandbox = fakes.Sandbox(overrides={"step": lambda request: long})
    played, _, _ = fakes.play(lambda prompt, seed: "1", sandbox)
    assert {turn.answer for e in played.episodes for turn in e.turns} == {"n" * rollout._ANSWER}


def mixed(text, rng):
    return scripted_study.designer(text, rng, ("fair", "trivial")[rng.integers(2)])


class Player:
    """Plays, and calls every environment unsound whose source is trivial."""

    def __init__(self):
        self.reviews = []

    def __call__(self, text, rng):
        if "Is the environment sound?" not in text:
            return scripted_study.agent(text, rng, float)
        self.reviews.append(text)
        return "\\boxed{no}" if 'kind = "trivial"' in text else "\\boxed{yes}"


def begun(penalty, world=scripted_study.World, **changes):
    """Two iterations of a generation of twelve, whose credit is due in the second."""
    asked = design.DesignConfig(
        drafts=12, every=2, max_tokens=96, novelty_weight=0.0, leak_weight=0.0
    )
    config = scripted_study.run_config(
        LONG, design=asked, review=review.ReviewConfig(penalty=penalty, max_tokens=64), **changes
    )
    player = Player()
    progress, bound = scripted_study.start(config, mixed, player, world)
    return player, progress, lambda: loop.iterate(progress, bound, config).metrics


def test_a_draft_is_reviewed_once_and_a_no_is_charged_when_its_credit_is_due():
    player, progress, iterate = begun(0.5)
    first = iterate()
    assert len(player.reviews) == first["count/review_replies"] == 12
    assert "PLAYER: " in player.reviews[0] and "lock" in player.reviews[0]
    waiting = progress.pool.waiting
    sources = [w.draft.source for w in waiting]
    owed = [0.5 if "trivial" in source else 0.0 for source in sources]
    assert 0 < sum(owed) < 6 and [w.penalty for w in waiting] == owed
    assert first["env/reviewed_unsound"] == pytest.approx(np.mean(owed) / 0.5)
    second = iterate()
    assert len(player.reviews) == 12 and "count/review_replies" not in second
    assert second["env/penalty"] == pytest.approx(np.mean(owed))


def test_a_review_survives_a_checkpoint(tmp_path):
    _, progress, iterate = begun(0.5)
    kept = archive.Archive(tmp_path / "programs.jsonl")
    progress.pool = pool.empty(scripted_study.run_config(LONG).pool, kept)
    iterate()
    host = json.loads(json.dumps(loop.to_host(progress)))
    again = pool.from_json(host["pool"], kept.path)
    assert all(w.reviewed for w in again.waiting) and again.waiting == progress.pool.waiting


def test_without_a_penalty_nobody_is_asked():
    player, _, iterate = begun(0.0)
    assert "count/review_replies" not in iterate() and player.reviews == []


# Ten rows of the twelve are drawn in the first iteration; the other two are played, and reviewed,
# before their credit.
def test_what_plays_later_is_reviewed_later():
    smaller = dataclasses.replace(scripted_study.run_config(1).rollout, environments=10)
    player, progress, iterate = begun(0.5, rollout=smaller)
    assert iterate()["count/review_replies"] == 10
    assert iterate()["count/review_replies"] == 2


def test_only_plain_plays_that_came_to_an_end_are_shown():
    player, progress, iterate = begun(0.5)
    iterate()
    waiting = [dataclasses.replace(w, reviewed=False) for w in progress.pool.waiting]
    progress.pool.waiting = waiting
    slots = [w.slot for w in waiting]
    table = [pool.environment(progress.pool, slot) for slot in slots]
    episodes = [episode(row=0, arm=records.HINTED), episode(row=1, fault="environment")]
    found = loop.reviewing.apply(
        table, slots, [*episodes, episode(row=2)], progress, *parts(progress, player), story.Clock()
    )
    assert found.asked == 1 and [w.reviewed for w in progress.pool.waiting[:3]] == [0, 0, 1]


def parts(progress, player):
    """A world of the same rules and its configuration."""
    config = scripted_study.run_config(LONG, review=review.ReviewConfig(penalty=0.5, max_tokens=64))
    return scripted_study.start(config, mixed, player)[1], config


def test_settings_that_ask_nobody_or_pay_for_faults_are_refused():
    with pytest.raises(ValueError, match="review.max_tokens=256"):
        settings.RunConfig(review=review.ReviewConfig(penalty=0.5, max_tokens=256))
    settings.RunConfig(review=review.ReviewConfig(max_tokens=256))
    with pytest.raises(ValueError, match="review.penalty=-1"):
        review.ReviewConfig(penalty=-1)
    with pytest.raises(ValueError, match="review.max_tokens=0"):
        review.ReviewConfig(max_tokens=0)
