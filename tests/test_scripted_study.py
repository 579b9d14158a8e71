"""Rules in place of models drive the real corridor: difficulty follows skill, nothing leaks."""

import json
import types

import numpy as np
import pytest

from experiments import scripted_study
from spade_jax import archive, design, generation, loop, pool, settings


def test_a_run_restored_from_its_checkpoint_goes_on_as_if_nothing_had_happened(tmp_path):
    config = scripted_study.run_config(100)
    progress, world = scripted_study.start(
        config, scripted_study.designer, lambda text, rng: scripted_study.agent(text, rng, float)
    )
    kept = archive.Archive(tmp_path / "programs.jsonl")
    progress.pool = pool.empty(config.pool, kept)
    for _ in range(3):
        loop.iterate(progress, world, config)
    host = json.loads(json.dumps(loop.to_host(progress)))
    copied = loop.jax.tree.map(lambda x: x.copy(), progress.train)  # the update eats its input
    again = loop.from_host(copied, host, tmp_path / "programs.jsonl")
    lines = []
    for one in (progress, again):
        lines.append(loop.iterate(one, world, config).metrics)
    timeless = [{k: v for k, v in line.items() if "time/" not in k} for line in lines]
    assert timeless[0] == timeless[1]


@pytest.fixture(scope="module")
def run():
    """48 iterations in which the agent's skill doubles."""
    return scripted_study.study(scripted_study.run_config(48))


def test_win_rates_stay_near_the_middle_while_skill_doubles(run):
    rates = [line["rollout/win_rate"] for line in run]
    assert run[-1]["skill"] == 2 * run[0]["skill"]
    # The first generations know nothing of the agent. 96 plays: a standard error of 0.05.
    assert all(0.2 < rate < 0.8 for rate in rates[12:]), rates
    assert 0.4 < np.mean(rates[12:]) < 0.65


def test_counts_conserve_and_no_environment_leaks(run):
    for line in run:
        masked = sum(v for k, v in line.items() if k.startswith("count/masked_"))
        assert line["count/generated"] == line["count/trained"] + masked
        assert line["env/pool_size"] <= 48
    # 12 drafts every second iteration, credited in the iteration after: none waits longer.
    assert [line["count/waiting"] for line in run] == [12, 0] * 24


class Designer:
    """Fails until it is told twice, and remembers its prompts."""

    def __init__(self):
        self.prompts = []

    def __call__(self, text, rng):
        self.prompts.append(text)
        if text.count("refused") < 1 and len(self.prompts) <= 24:
            return "no program"
        return scripted_study.PROGRAM.format(kind="fair", level="0.0", salt=rng.integers(10**6))


def written(**changes):
    fields = {"drafts": 12, "max_tokens": 96} | changes
    config = scripted_study.run_config(100, design=design.DesignConfig(**fields))
    rule = Designer()
    progress, world = scripted_study.start(
        config, rule, lambda text, rng: scripted_study.agent(text, rng, float)
    )
    return rule, progress, loop.iterate(progress, world, config).metrics


def test_further_attempts_are_trained_too():
    rule, progress, line = written(attempts=3)
    # 12 fail, 12 fail again, 12 of the third attempt are sound
    assert len(rule.prompts) == 36
    assert (line["count/drafts"], line["count/accepted"]) == (36, 12)
    assert line["count/refused_no_program"] == 24 and line["count/refused"] == 24
    assert line["env/pool_size"] == 12


def test_a_repair_is_told_the_reason_is_played_and_not_trained():
    rule, progress, line = written(repairs=1)
    assert len(rule.prompts) == 24
    assert "no program" in rule.prompts[12] and "refused" in rule.prompts[12]
    assert (line["count/drafts"], line["count/accepted"], line["count/repaired"]) == (12, 0, 12)
    assert line["env/pool_size"] == 12 and line["count/refused"] == 12
    assert line["count/episodes"] > 0 and len(progress.pool.waiting) == 0


# The first attempt takes longer than a nanosecond: its 12 drafts stay, the 12 wishes are not asked
# again, and none of the 12 is mended.
def test_what_the_time_of_the_stage_cuts_is_counted_and_what_is_written_stays():
    rule, progress, line = written(attempts=3, repairs=1, stage_seconds=1e-9)
    assert len(rule.prompts) == 12 and line["count/cut_drafts"] == 12 + 12
    assert (line["count/drafts"], line["count/refused"], line["env/pool_size"]) == (12, 12, 0)
    rule, progress, line = written(attempts=3, stage_seconds=1e9)
    assert len(rule.prompts) == 36 and "count/cut_drafts" not in line


def test_the_slowest_process_decides_when_the_stage_ends():
    world = types.SimpleNamespace(group=types.SimpleNamespace(gather=lambda mine: [mine, 9.0]))
    clock = types.SimpleNamespace(seconds={"design": 1.0, "rollout": 100.0})
    limits = design.DesignConfig(attempts=2, stage_seconds=8.0)
    bound = types.SimpleNamespace(
        world=world, clock=clock, config=types.SimpleNamespace(design=limits)
    )
    assert generation._late(bound)
    world.group.gather = lambda mine: [mine, 7.0]
    assert not generation._late(bound)


def test_an_attempt_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="design.attempts=0"):
        settings.design.DesignConfig(attempts=0)
    with pytest.raises(ValueError, match="stage_seconds=60.*attempts=1 and repairs=0"):
        settings.design.DesignConfig(stage_seconds=60)
