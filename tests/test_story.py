"""The figures of an iteration are what they say, and each has a name that METRICS knows."""

import collections
import dataclasses
import math

import fakes
import numpy as np
import pytest

from spade_jax import batch, metrics, pool, programs, records, rollout, screen, story, validate

NAN = float("nan")


def episode(environment=0, play=0, arm=0, value=0.0, fault="", truncated=False, seed_index=0):
    turn = records.Turn(
        observed_ids=(1, 2), reply=fakes.reply("3"), action="3", reward=value
    )  # fmt: skip
    return records.Episode(
        environment=environment, seed_index=seed_index, play=play, arm=arm, seed=7,
        turns=() if fault else (turn,), value=value, fault=fault, detail="", truncated=truncated,
        observation="Guess.",
    )  # fmt: skip


# Environment 0 (plain 1 0 0 1, hinted 1 1), environment 1 (plain 0 0 and a fault, hinted refused).
EPISODES = [
    episode(0, 0, 0, 1.0), episode(0, 1), episode(0, 2, truncated=True), episode(0, 3, 0, 1.0),
    episode(0, 0, 1, 1.0), episode(0, 1, 1, 1.0),
    episode(1, 0), episode(1, 1, 0, -0.5), episode(1, 2, fault="environment"),
]  # fmt: skip
REPORT = {
    "win_rate_N": np.array([0.5, -0.25, NAN, 0.0]),  # tables are padded to 4 rows
    "hinted_rate_N": np.array([1.0, NAN, NAN, 0.0]),
    "regret_N": np.array([0.5, 0.0, 0.0, 0.0]),
    "shrunk_N": np.array([0.25, 0.0, 0.0, 0.0]),
    "regret_se_N": np.array([0.3, 0.0, 0.0, 0.0]),
    "paired_N": np.array([1.0, 0.0, 0.0, 1.0]),
    "designer_paid_M": np.array([1.0, 1.0, 0.0, 0.0]),
    "designer_raw_M": np.array([0.5, -0.5, 9.0, 0.0]),
    "designer_penalty_M": np.array([0.0, 0.25, 0.0, 0.0]),
    **{  # the first was played, the second refused
        f"part_{name}_M": np.array([0.5, -1.0, -1.0, -1.0])
        for name in ("regret", "plateau", "progress", "frontier", "late_minus_early", "variance")
    },
    "quota_Z": np.full(6, 1 / 6),
    "win_rate_Z": np.array([0.5, 0.25, NAN, NAN, NAN, NAN]),
    "slow_rate_Z": np.array([0.375, 0.25, 0.0, 0.0, 0.0, 0.0]),
    "tokens_2": np.array([30.0, 10.0]),
    **{
        name: np.array([0.1, 0.5])
        for name in ("entropy_2", "advantage_rms_2", "kl_2", "step_kl_2", "clipped_2",
                     "importance_2", "importance_off_2", "importance_capped_2", "surprise_2",
                     "logp_gap_2", "max_logp_gap_2")
    },
    **dict.fromkeys(
        ("loss", "policy_loss", "gradient_norm", "update_norm", "parameter_norm",
         "learning_rate"), np.float32(0.25),
    ),
    "skipped_steps": 1,
}  # fmt: skip


def verdict(uid, reason=""):
    refused = programs.Finding(reason=reason, detail="it does") if reason else None
    return validate.Verdict(
        uid=uid, environment=None if reason else fakes.environment(uid), finding=refused, checks={}
    )


def told(**changes):
    config = pool.PoolConfig(slots=4)
    current = pool.empty(config)
    table = [
        fakes.environment(0, skill=records.SKILLS[0]),
        fakes.environment(1, skill=records.SKILLS[1]),
    ]
    pool.admit(current, table, config)
    reasons = ["", "syntax", "infra", "unplaced"]
    due = [
        pool.Waiting(draft=fakes.draft(n), slot=-1, reason=reason, penalty=0.0, due=0)
        for n, reason in enumerate(reasons)
    ]
    fields = {
        "written": story.Written(
            drafts=[fakes.draft(n) for n in range(3)],
            verdicts=[verdict(0), verdict(1, "syntax"), verdict(2, "syntax")],
            slots=[0, -1, -1],
            screening=screen.Cost(processes=3),
        ),
        "played": rollout.Played(
            episodes=EPISODES,
            hint_refusals=collections.Counter({"leaks_answer": 1}),
            dropped=2,
            leaks_N={},
            transcripts=[("Guess.", "3")] * len(EPISODES),
            processes=2,
        ),
        "hint_refusals": collections.Counter(),
        "made": batch.Made(
            batch=None,
            counts=collections.Counter(generated=13, trained_designer=2, trained_agent=8),
            rows=4,
            real_share=0.75,
        ),
        "masked": collections.Counter(hinted=2, environment_fault=1),
        "report": REPORT,
        "table": table,
        "due": due,
        "pool": current,
        "clock": story.Clock(),
    }
    return story.Told(**(fields | changes))


def test_every_figure_has_a_known_name_and_is_a_number():
    named = story.metrics(told(), {})
    assert set(metrics.check(named)) == set(named)
    assert all(math.isfinite(value) for value in named.values())


def test_what_the_screen_by_the_policy_took_is_told_where_it_was_asked():
    assert not {"env/screened_out", "count/screen_replies"} & set(story.metrics(told(), {}))
    cost = screen.Cost(screened=8, refused=2, replies=32)
    named = story.metrics(told(written=story.Written(screening=cost)), {})
    assert named["env/screened_out"] == 0.25 and named["count/screen_replies"] == 32


def test_play_is_summed_over_sound_episodes():
    named = story.metrics(told(), {})
    # Plain and sound: 1 0 0 1 0 -.5, of which two win; one of nine is truncated, one is a fault.
    assert named["rollout/win_rate"] == pytest.approx(2 / 6)
    assert named["rollout/mean_return"] == pytest.approx(1.5 / 6)
    assert named["rollout/hinted_win_rate"] == 1.0
    assert named["rollout/truncated"] == pytest.approx(1 / 9)
    assert named["rollout/environment_faults"] == pytest.approx(1 / 9)
    assert named["rollout/infra_faults"] == 0.0
    assert named["rollout/zero_spread"] == 0.0
    assert named["rollout/turns"] == 1.0 and named["rollout/reply_tokens"] == 2.0


def test_regret_is_told_of_environments_with_both_arms_alone():
    named = story.metrics(told(), {})
    assert named["env/raw_regret"] == 0.5 and named["env/regret"] == 0.25
    assert named["env/regret_se"] == pytest.approx(0.3)
    assert named["env/skill_mathematical_reasoning/regret"] == 0.5
    assert "env/skill_logical_deduction/regret" not in named
    assert named["env/skill_logical_deduction/win_rate"] == -0.25
    # Of the failures of environment 0, 0.5, the hint removes all.
    assert named["env/earned_difficulty"] == 1.0
    # 2 of 4 hinted plays were left out.
    assert named["env/hints_kept"] == 0.5


def test_a_row_of_padding_is_no_environment():
    named = story.metrics(told(), {})
    assert named["env/learnable"] == 0.5  # 0.5 is, -0.25 is not
    assert named["env/pool_size"] == 2


def test_drafts_are_counted_by_what_became_of_them():
    named = story.metrics(told(), {})
    assert named["env/validity"] == pytest.approx(1 / 3)
    assert named["env/skill_mathematical_reasoning/validity"] == pytest.approx(1 / 3)
    assert (named["count/drafts"], named["count/accepted"]) == (3, 1)
    assert named["count/refused_syntax"] == 2
    assert named["count/refused"] == 1  # nobody refused what could not be checked or placed
    assert (named["count/generated"], named["count/trained"]) == (13, 10)
    assert (named["count/masked_hinted"], named["count/masked_environment_fault"]) == (2, 1)
    assert named["env/designer_reward"] == 0.0  # 0.5 and -0.5; the third was not paid


# Roles weigh by tokens, 3 to 1: 0.75 * 0.1 + 0.25 * 0.5 = 0.2.
def test_figures_of_the_update_are_weighed_by_tokens():
    named = story.metrics(told(), {})
    assert named["train/kl"] == pytest.approx(0.2)
    assert named["train/logp_gap_max"] == 0.5
    assert named["train/padding"] == 0.25 and named["train/skipped_steps"] == 1
    assert (named["actor/designer_entropy"], named["actor/agent_entropy"]) == (0.1, 0.5)
    assert named["count/tokens"] == 40


def test_totals_move_forward():
    totals = {}
    for times in (1, 2):
        named = story.metrics(told(), totals)
        assert named["count/total_episodes"] == 9 * times
        assert named["count/total_programs"] == 5 * times
    assert totals == {
        "drafts": 6, "accepted": 2, "episodes": 18, "programs": 10, "refused_syntax": 4,
        "hint_refused_leaks_answer": 2, "unchecked": 0, "skipped_in_a_row": 2,
    }  # fmt: skip
    story.metrics(told(report=REPORT | {"skipped_steps": 0}), totals)
    assert totals["skipped_in_a_row"] == 0


def test_drafts_that_nobody_could_judge_lower_no_validity():
    written = told().written
    lost = [*written.verdicts[:2], verdict(2, "infra")]
    named = story.metrics(told(written=dataclasses.replace(written, verdicts=lost)), {})
    assert named["env/validity"] == 0.5 and named["count/unchecked"] == 1
    assert named["env/skill_mathematical_reasoning/validity"] == 0.5
    assert named["count/refused_syntax"] == 1 and "count/refused_infra" not in named
    lost = [verdict(n, "infra") for n in range(3)]
    named = story.metrics(told(written=dataclasses.replace(written, verdicts=lost)), {})
    assert not [name for name in named if name.endswith("validity")]


def test_drafts_that_the_device_did_not_pay_are_not_trained():
    masked = collections.Counter(hinted=2, environment_fault=1, unpaid=1)
    named = story.metrics(told(masked=masked), {})
    assert (named["count/trained"], named["count/masked_unpaid"]) == (9, 1)
    masked_in_all = sum(n for name, n in named.items() if name.startswith("count/masked_"))
    assert named["count/generated"] == named["count/trained"] + masked_in_all


def test_hints_that_the_gate_refused_are_counted_by_reason():
    named = story.metrics(told(hint_refusals=collections.Counter(empty=3)), {})
    assert named["count/hint_refused_leaks_answer"] == 1
    assert named["count/policy_hint_refused_empty"] == 3


def test_a_role_without_trained_tokens_has_no_entropy():
    report = dict(REPORT, tokens_2=np.array([0.0, 10.0]), entropy_2=np.array([0.0, 0.5]))
    named = story.metrics(told(report=report), {})
    assert "actor/designer_entropy" not in named and named["actor/agent_entropy"] == 0.5


def test_what_drafts_earned_is_told_by_part_and_by_its_spread():
    named = story.metrics(told(), {})
    # Of the drafts that are paid, 0.5 and -0.5, the first alone was played.
    assert named["env/designer_reward_std"] == 0.5
    assert named["env/part_plateau"] == named["env/part_late_minus_early"] == 0.5
    refused = dict(REPORT, designer_paid_M=np.array([0.0, 1.0, 0.0, 0.0]))
    assert "env/part_plateau" not in story.metrics(told(report=refused), {})


def test_skills_tell_their_spread_and_their_running_means():
    named = story.metrics(told(), {})
    # Plain and sound: 1 0 0 1 in the first skill, 0 and -0.5 in the second, one group each.
    first, second = "env/skill_mathematical_reasoning", "env/skill_logical_deduction"
    assert (named[f"{first}/reward_std"], named[f"{second}/reward_std"]) == (0.5, 0.25)
    assert named[f"{first}/zero_spread"] == 0.0
    assert named[f"{first}/hinted_win_rate"] == 1.0 and f"{second}/hinted_win_rate" not in named
    assert (named[f"{first}/fast"], named[f"{first}/slow"]) == (0.5, 0.375)
    assert "env/skill_optimization/fast" not in named  # never played


# Arrays are as long as the longest list of skills of any setting.
def test_a_setting_with_fewer_skills_tells_of_its_own_alone():
    longer = {
        "quota_Z": np.full(8, 1 / 8),
        "win_rate_Z": np.array([0.5, 0.25] + [NAN] * 6),
        "slow_rate_Z": np.array([0.375, 0.25] + [0.0] * 6),
    }
    named = story.metrics(told(report=REPORT | longer), {})
    quotas = {name: share for name, share in named.items() if name.endswith("/quota")}
    assert len(quotas) == 6 and set(quotas.values()) == {1 / 8}


def test_the_best_scripted_player_is_told_over_the_drafts_it_played():
    written = told().written
    assert "env/cheat_rate" not in story.metrics(told(), {})
    rates = [0.0, 0.5, None]  # the last did not come to it
    tried = [
        dataclasses.replace(v, cheat_rate=rate)
        for v, rate in zip(written.verdicts, rates, strict=True)
    ]
    named = story.metrics(told(written=dataclasses.replace(written, verdicts=tried)), {})
    assert (named["env/cheat_rate"], named["env/cheat_rate_max"]) == (0.25, 0.5)


def test_divergence_without_a_reference_is_no_metric():
    report = {name: value for name, value in REPORT.items() if name != "kl_2"}
    assert "train/kl" not in story.metrics(told(report=report), {})


def test_an_iteration_without_designer_and_plays_is_told_too():
    nothing = rollout.Played(
        episodes=[],
        hint_refusals=collections.Counter(),
        dropped=0,
        leaks_N={},
        transcripts=[],
        processes=0,
    )
    quiet = dict(REPORT, paired_N=np.zeros(4), designer_paid_M=np.zeros(4))
    empty = pool.empty(pool.PoolConfig(slots=2))
    named = story.metrics(
        told(written=story.Written(), played=nothing, report=quiet, table=[], due=[], pool=empty),
        {},
    )
    assert "rollout/win_rate" not in named and "env/raw_regret" not in named
    assert named["env/learnable"] == 0.0 and named["env/skill_entropy"] == 0.0
    assert metrics.check(named)


def test_skill_entropy_is_over_the_skills_of_the_setting():
    config = pool.PoolConfig(slots=6)
    current = pool.empty(config)
    skills = records.TOOL_SKILLS
    tools = [fakes.environment(n, setting="tool_use", skill=skills[n]) for n in range(6)]
    pool.admit(current, tools, config)
    assert story.metrics(told(pool=current), {})["env/skill_entropy"] == pytest.approx(1.0)


def test_the_clock_adds_up_stages():
    entered = []
    clock = story.Clock(entered.append)
    for _ in range(2):
        with clock.stage("design"):
            pass
    with pytest.raises(KeyError), clock.stage("learn"):
        raise KeyError
    assert entered == ["design", "design", "learn"]
    assert set(clock.seconds) == {"design", "learn"} and min(clock.seconds.values()) >= 0
    assert "time/design" in story.metrics(told(clock=clock), {})


@pytest.mark.parametrize(
    ("rates", "share"),
    [([], 0.0), ([NAN], 0.0), ([0.2, 0.8, 0.19, 0.81, NAN], 0.5), ([0.5], 1.0)],
)
def test_the_learnable_band_is_closed_and_unknown_rates_are_left_out(rates, share):
    assert story.learnable(np.array(rates)) == share


# Two of four skills equally: ln 2 / ln 4.
@pytest.mark.parametrize(
    ("counts", "value"), [([], 0), ([5], 0), ([0, 0], 0), ([2, 2, 0, 0], 0.5), ([1, 1, 1], 1)]
)
def test_entropy_is_a_share_of_its_maximum(counts, value):
    assert story.entropy(counts) == pytest.approx(value)


def test_the_sample_shows_drafts_with_verdicts_and_plays_with_ends():
    page = story.sample(told(), 4)
    assert page.startswith("iteration 4\n")
    assert "== draft 0 (Mathematical Reasoning, medium): accepted" in page
    assert "== draft 1 (Mathematical Reasoning, medium): refused: syntax: it does" in page
    assert page.count("== draft") == 3 and page.count("== play") == 6
    assert "Guess0Env  (plain, seed 7): ended, return +1.00\nGuess.\n> 3" in page
    assert story.sample(told(), 4, drafts=1, episodes=9).count("== play") == 9
    assert "(plain, seed 7): environment, return +0.00" in story.sample(told(), 4, episodes=9)


def test_a_sample_of_an_empty_iteration_is_a_page_too():
    nothing = dataclasses.replace(told().played, episodes=[], transcripts=[])
    assert story.sample(told(written=story.Written(), played=nothing), 0) == "iteration 0\n"
