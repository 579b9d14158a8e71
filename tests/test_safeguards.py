"""Collapses are told apart by name, in time, and answered; healthy runs are left alone."""

import dataclasses
import functools
import json

import numpy as np
import pytest

from experiments import scripted_study
from spade_jax import answering, checkpoint, loop, pool, safeguards, settings

CONFIG = safeguards.SafeguardsConfig()
GOOD = {"env/vendi": 0.6, "env/too_easy": 0.1}
SAME = {"env/vendi": 0.05, "env/too_easy": 0.1}


def watched(lines, config=CONFIG):
    health, states = safeguards.Health(), []
    for line in lines:
        health = safeguards.watch(health, line, config)
        states.append(health.state)
    return health, states


def test_a_cause_warns_after_two_observations_and_is_a_collapse_after_four():
    _, states = watched([GOOD, SAME, SAME, SAME, SAME, SAME])
    assert states == ["healthy", "healthy", "warning", "warning", "collapsed", "collapsed"]


def test_one_good_observation_ends_a_cause():
    health, states = watched([SAME, SAME, SAME, GOOD, SAME])
    assert states == ["healthy", "warning", "warning", "healthy", "healthy"]
    assert health.streaks == {"one_environment": 1}


def test_iterations_without_the_figure_neither_count_nor_clear():
    health, states = watched([SAME, {}, SAME, {"env/vendi": None}, {}])
    assert states == ["healthy", "healthy", "warning", "warning", "warning"]
    assert health.streaks == {"one_environment": 2}


def test_what_is_done_once_is_done_when_it_turns_a_collapse_and_again_when_it_lasts():
    health, onces = safeguards.Health(), []
    for _ in range(9):
        health = safeguards.watch(health, SAME, CONFIG)
        onces.append("reseed" in safeguards.answer(health, CONFIG).once)
    assert onces == [False, False, False, True, False, False, False, True, False]
    assert safeguards.answer(health, CONFIG).standing == {"explore"}


def test_pausing_waits_for_the_collapse_and_exploring_does_not():
    config = dataclasses.replace(CONFIG, one_environment="explore+pause")
    health, _ = watched([SAME, SAME], config)
    assert safeguards.answer(health, config).standing == {"explore"}
    health, _ = watched([SAME] * 4, config)
    assert safeguards.answer(health, config).standing == {"explore", "pause"}


def test_health_survives_a_checkpoint():
    health, _ = watched([SAME] * 4)
    again = safeguards.from_json(json.loads(json.dumps(dataclasses.asdict(health))))
    assert again == health


def test_every_rule_names_a_cause_a_bound_and_has_an_answer():
    for rule in safeguards.RULES:
        assert rule.cause in safeguards.CAUSES
        assert isinstance(getattr(CONFIG, rule.bound), float)
        assert isinstance(getattr(CONFIG, rule.cause), str)
    assert {rule.cause for rule in safeguards.RULES} == set(safeguards.CAUSES)


def test_an_unknown_answer_is_refused_with_those_that_exist():
    with pytest.raises(ValueError, match="'dance' is no answer; join names of explore, pause"):
        safeguards.SafeguardsConfig(too_easy="explore+dance")
    with pytest.raises(ValueError, match="warn_after=3, collapse_after=2"):
        safeguards.SafeguardsConfig(warn_after=3, collapse_after=2)


# ---------------------------------------------------------------- simulated collapses
# A generation is written every iteration: warning at the 2nd, collapse at the 4th observation.


def simulate(kind, iterations=5, **changes):
    config = scripted_study.run_config(
        100, **({"design": settings.design.DesignConfig(drafts=12, max_tokens=96)} | changes)
    )
    playing = functools.partial(scripted_study.agent, skill=lambda: 0.0)
    writing = functools.partial(scripted_study.collapsed_designer, kind=kind)
    progress, world = scripted_study.start(config, writing, playing)
    steps = [loop.iterate(progress, world, config) for _ in range(iterations)]
    return progress, steps


def causes_of(step):
    return {name[13:] for name in step.metrics if name.startswith("health/cause_")}


@pytest.mark.parametrize(
    ("kind", "cause"),
    [("one", "one_environment"), ("trivial", "too_easy"), ("unwinnable", "unwinnable"),
     ("leak", "hint_leaks"), ("crash", "faulty"), ("late", "faulty"), ("hole", "validator_hole")],
)  # fmt: skip
def test_a_collapse_is_named_within_four_generations_and_answered_in_the_fifth(kind, cause):
    progress, steps = simulate(kind)
    states = [step.metrics["health/state"] for step in steps]
    assert states == [0, 1, 1, 2, 2]
    assert cause in causes_of(steps[3])
    # A hole is too easy as well; nothing else is named beside a cause.
    allowed = {cause, "too_easy"} if kind == "hole" else {cause}
    assert causes_of(steps[3]) <= allowed, causes_of(steps[3])
    answered = {name[14:] for name in steps[4].metrics if name.startswith("health/answer_")}
    asked = {action for c in allowed for action in getattr(CONFIG, c).split("+")}
    assert answered and answered <= asked
    assert f"collapsed: {sorted(allowed)[0]}" in steps[3].notice or cause in steps[3].notice


def test_a_fair_designer_stays_healthy():
    progress, steps = simulate("fair")
    assert [step.metrics["health/state"] for step in steps] == [0] * 5
    assert not any(step.notice for step in steps)


def test_paused_drafts_are_masked_and_counted():
    _, steps = simulate("leak")
    assert "count/masked_paused" not in steps[3].metrics
    assert steps[4].metrics["count/masked_paused"] == 12


def test_reseeding_brings_seed_environments_into_play():
    progress, _ = simulate("crash")
    families = {pool.environment(progress.pool, int(p)).family for p in pool.alive(progress.pool)}
    assert len(families) == 12 and "" not in families


def test_reseeding_again_admits_nothing_that_is_alive():
    config = scripted_study.run_config(100)
    progress, _ = scripted_study.start(config, scripted_study.designer, scripted_study.agent)
    asked = safeguards.Answer(once=frozenset({"reseed"}))

    def digests():
        living = pool.alive(progress.pool)
        return [pool.environment(progress.pool, int(slot)).digest for slot in living]

    for _ in range(2):
        first = answering.prepare(progress, config, asked)
        progress.pool.win_rate_P[first], progress.pool.regret_P[first] = 0.5, 0.3
        assert first and len(set(digests())) == len(digests())
    # Three of the pool leave it for memory, from where they come back once, however often asked.
    living = pool.alive(progress.pool)
    left = digests()[:3]
    pool._forget(progress.pool, [int(slot) for slot in living[:3]], config.pool)
    progress.pool.number_P[living[:3]] = -1
    for _ in range(2):
        answering.prepare(progress, config, asked)
        assert len(set(digests())) == len(digests()) and set(left) <= set(digests())


def test_environments_with_blind_wins_leave_the_draw_for_good():
    progress, _ = simulate("hole")
    banned = np.flatnonzero(progress.pool.banned_P)
    assert len(banned) and progress.pool.retired_P[banned].all()


def test_exploring_raises_the_temperature_of_drafts():
    design = settings.design.DesignConfig(drafts=12, every=2, max_tokens=96)
    guards = safeguards.SafeguardsConfig(warn_after=1)
    # Generations come at iterations 0 and 2: the first warns, the second waits hotter for credit.
    progress, _ = simulate("one", iterations=3, design=design, safeguards=guards)
    assert {waiting.temperature for waiting in progress.pool.waiting} == {1.3}


def test_a_roll_back_restores_parameters_of_the_last_healthy_iteration_and_nothing_else(tmp_path):
    guards = safeguards.SafeguardsConfig(unwinnable="roll_back", healthy_every=1)
    assert safeguards.may_roll_back(guards) and not safeguards.may_roll_back(CONFIG)
    store = checkpoint.Store(tmp_path, checkpoint.CheckpointConfig())
    config = scripted_study.run_config(100, safeguards=guards)
    progress, _ = scripted_study.start(config, scripted_study.designer, scripted_study.agent)
    asked = safeguards.Answer(once=frozenset({"roll_back"}))
    assert "no healthy checkpoint" in answering.roll_back(progress, store, asked)
    answering.keep_healthy(progress, store, config)  # iteration 0
    first = np.asarray(progress.train.params["embed"]).copy()
    moved = {**progress.train.params, "embed": progress.train.params["embed"] + 1.0}
    progress.train = dataclasses.replace(progress.train, params=moved, step=progress.train.step + 5)
    progress.iteration = 3
    progress.health = safeguards.Health(state="collapsed")
    answering.keep_healthy(progress, store, config)
    assert answering.roll_back(progress, store, safeguards.Answer()) == ""
    assert answering.roll_back(progress, store, asked).endswith("iteration 0")
    assert np.array_equal(progress.train.params["embed"], first)
    assert progress.train.step == 5 and progress.iteration == 3


def test_stopping_is_an_error_that_names_the_cause():
    guards = safeguards.SafeguardsConfig(too_easy="stop")
    with pytest.raises(answering.CollapsedError, match="collapsed: too_easy"):
        simulate("trivial", safeguards=guards)


def test_a_frozen_designer_is_played_and_never_trained():
    design = settings.design.DesignConfig(drafts=12, max_tokens=96, frozen=True)
    _, steps = simulate("fair", iterations=2, design=design)
    assert [step.metrics["count/masked_paused"] for step in steps] == [12, 12]
    assert all(step.metrics["rollout/win_rate"] > 0 for step in steps)
