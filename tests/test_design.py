"""A generation's drafts add up, aim at the middle, and pay by the reason of a refusal."""

import collections
import math

import fakes
import numpy as np
import pytest

from spade_jax import design, records

NAN = float("nan")
EVEN = np.full(6, 1 / 6)
UNKNOWN = np.full(6, NAN)


def counts(config, generation=0, quota_Z=EVEN):
    wishes = design.plan(config, generation, quota_Z, UNKNOWN, records.SKILLS)
    found = collections.Counter(wish.skill for wish in wishes)
    return [found[skill] for skill in records.SKILLS]


# 24 / 6 = 4 each; 8 / 6 = 1.33: one each, and the two left over go to the first.
@pytest.mark.parametrize(
    ("drafts", "expected"),
    [(24, [4] * 6), (8, [2, 2, 1, 1, 1, 1]), (2, [1, 1, 0, 0, 0, 0]), (0, [0] * 6)],
)
def test_uniform_counts_differ_by_one_at_most(drafts, expected):
    assert counts(design.DesignConfig(drafts=drafts, skills="uniform")) == expected


# 10 drafts at .55 .25 .2: exact 5.5 2.5 2.0; floors 5 2 2 leave one, ties go to the first.
def test_learning_progress_follows_the_quota():
    config = design.DesignConfig(drafts=10, skills="learning_progress")
    quota_Z = np.array([0.55, 0.25, 0.2, 0.0, 0.0, 0.0])
    assert counts(config, quota_Z=quota_Z) == [6, 2, 2, 0, 0, 0]
    assert counts(config, quota_Z=quota_Z * 3) == [6, 2, 2, 0, 0, 0]


# 9 drafts over the first and the third of six skills, whose quotas are 2 to 1.
def test_only_skills_that_are_named_are_asked_for():
    named = (records.SKILLS[0], records.SKILLS[2])
    config = design.DesignConfig(drafts=9, skills="learning_progress", only_skills=named)
    assert counts(config, quota_Z=np.array([0.2, 0.3, 0.1, 0.2, 0.1, 0.1])) == [6, 0, 3, 0, 0, 0]
    config = design.DesignConfig(only_skills=("Juggling",))
    with pytest.raises(ValueError, match="only_skills names .'Juggling'.; the setting has Math"):
        counts(config)


# Arrays are as long as the longest list of skills: a shorter one reads its own part.
def test_a_setting_may_have_fewer_skills_than_the_arrays_hold():
    config = design.DesignConfig(drafts=6, skills="learning_progress")
    few = records.TOOL_SKILLS[:2]
    wishes = design.plan(config, 0, np.array([0.2, 0.1, 0.7]), np.array([0.9, NAN, 0.1]), few)
    asked = [(wish.skill, wish.difficulty) for wish in wishes]
    assert asked == [(few[0], "hard")] * 4 + [(few[1], "medium")] * 2


@pytest.mark.parametrize("drafts", [1, 7, 24, 113])
def test_counts_add_up_for_any_quota(drafts):
    rng = np.random.default_rng(drafts)
    config = design.DesignConfig(drafts=drafts, skills="learning_progress")
    for _ in range(100):
        quota_Z = rng.dirichlet(np.full(6, 0.3)).astype(np.float32)
        found = counts(config, quota_Z=quota_Z)
        assert sum(found) == drafts and min(found) >= 0
        assert np.abs(np.array(found) - drafts * quota_Z).max() < 1 + 1e-3


# Windows of 3 over 6 skills begin at 0, 3, 0, ...; windows of 4 begin at 0, 4, 2, 0.
def test_rotation_moves_a_window_over_the_skills():
    three = design.DesignConfig(drafts=6, skills="rotation", active_skills=3)
    assert [counts(three, g) for g in range(3)] == [
        [2, 2, 2, 0, 0, 0], [0, 0, 0, 2, 2, 2], [2, 2, 2, 0, 0, 0],
    ]  # fmt: skip
    four = design.DesignConfig(drafts=4, skills="rotation", active_skills=4)
    assert [counts(four, g) for g in range(4)] == [
        [1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0],
    ]  # fmt: skip
    assert counts(design.DesignConfig(drafts=6, skills="rotation", active_skills=9)) == [1] * 6


@pytest.mark.parametrize(
    ("win_rate", "word"),
    [(NAN, "medium"), (0.0, "easy"), (0.39, "easy"), (0.4, "medium"), (0.5, "medium"),
     (0.6, "medium"), (0.61, "hard"), (1.0, "hard"), (-0.5, "easy")],
)  # fmt: skip
def test_the_difficulty_word_moves_the_win_rate_to_the_middle(win_rate, word):
    assert design.target_difficulty(win_rate) == word


def words(rule, generation=0):
    config = design.DesignConfig(drafts=12, difficulty=rule)
    rates_Z = np.array([0.1, 0.5, 0.9, NAN, 0.2, 0.8])
    wishes = design.plan(config, generation, EVEN, rates_Z, records.SKILLS)
    return [wish.difficulty for wish in wishes]


def test_difficulty_follows_the_win_rate_of_its_own_skill():
    pairs = ["easy", "medium", "hard", "medium", "easy", "hard"]
    assert words("target") == [word for word in pairs for _ in range(2)]


def test_difficulty_may_cycle_or_stand_still():
    assert words("cycle") == ["easy", "medium"] * 6
    assert words("cycle", generation=1) == ["medium", "hard"] * 6
    assert words("hard") == ["hard"] * 12


@pytest.mark.parametrize(
    ("reason", "reward"),
    [("", 0.0), ("no_program", -1.0), ("syntax", -1.0), ("too_long", -1.0), ("import", -0.5),
     ("nondeterministic", -0.5), ("duplicate", -0.5), ("degenerate", -0.5)],
)  # fmt: skip
def test_a_refusal_pays_by_its_reason(reason, reward):
    assert design.refusal_reward(reason, design.DesignConfig()) == reward


def test_the_rewards_of_refusals_are_settings():
    config = design.DesignConfig(refused_reward=-0.25, unparsed_reward=-2.0)
    assert design.refusal_reward("contract", config) == -0.25
    assert design.refusal_reward("syntax", config) == -2.0


# Threshold 0.8, weight 0.3: 0.9 lies half way from the threshold to 1.
@pytest.mark.parametrize(
    ("similarity", "penalty"), [(0.0, 0.0), (0.8, 0.0), (0.9, 0.15), (1.0, 0.3)]
)
def test_a_near_copy_pays_by_how_near_it_is(similarity, penalty):
    assert design.novelty_penalty(similarity, design.DesignConfig()) == pytest.approx(penalty)


def test_a_threshold_of_one_charges_nothing():
    config = design.DesignConfig(novelty_threshold=1.0)
    assert design.novelty_penalty(1.0, config) == 0.0
    assert math.isfinite(design.novelty_penalty(0.5, config))


def test_every_draft_is_kept_with_its_prompt_reply_and_number():
    policy = fakes.Policy(lambda prompt, seed: f"{prompt}:{seed}" if seed != 6 else "prose...")
    wishes = [
        design.Assignment(skill=records.SKILLS[z], difficulty="easy") for z in range(3)
    ]  # fmt: skip
    drafts = design.write(
        wishes,
        [list(fakes.encode(word)) for word in ("a", "b", "c")],
        policy.generate,
        fakes.text_of,
        lambda text: text.upper() if ":" in text else None,
        seeds=np.array([5, 6, 7], np.uint32),
        generation=2,
        version=9,
        first_uid=40,
    )
    assert [draft.uid for draft in drafts] == [40, 41, 42]
    assert [draft.text for draft in drafts] == ["a:5", "prose...", "c:7"]
    assert [draft.source for draft in drafts] == ["A:5", None, "C:7"]
    assert [draft.skill for draft in drafts] == list(records.SKILLS[:3])
    assert drafts[1].prompt_ids == fakes.encode("b") and not drafts[1].reply.stopped
    assert {(d.generation, d.version, d.difficulty) for d in drafts} == {(2, 9, "easy")}


def test_a_lost_reply_is_no_draft_less():
    with pytest.raises(ValueError):
        design.write(
            [design.Assignment(skill=records.SKILLS[0], difficulty="easy")] * 2,
            [(1,), (2,)],
            lambda prompts, seeds: [fakes.reply("x")],
            fakes.text_of,
            lambda text: text,
            seeds=[0, 1],
            generation=0,
            version=0,
            first_uid=0,
        )


@pytest.mark.parametrize(("field", "value"), [("drafts", -1), ("every", 0), ("active_skills", 0)])
def test_a_setting_that_cannot_work_is_refused_with_its_name(field, value):
    with pytest.raises(ValueError, match=f"design.{field}={value}"):
        design.DesignConfig(**{field: value})
