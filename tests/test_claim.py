"""A work directory goes on only with the configuration it was begun with."""

import dataclasses

import pytest

from spade_jax import checkpoint, claim, config, settings

BEGUN = settings.RunConfig(iterations=4)


def start(folder, now):
    moved = claim.compare(folder, now)
    claim.take(folder, now)
    return moved


def with_(**changes):
    return dataclasses.replace(BEGUN, **changes)


def test_the_same_configuration_goes_on(tmp_path):
    start(tmp_path, BEGUN)
    start(tmp_path, BEGUN)
    assert claim.read(tmp_path / claim.NAME)["iterations"] == "4"
    assert [path.name for path in tmp_path.iterdir()] == [claim.NAME]


def test_every_knob_that_differs_is_named_with_both_values(tmp_path):
    start(tmp_path, BEGUN)
    other = with_(seed=3, pool=dataclasses.replace(BEGUN.pool, slots=64))
    with pytest.raises(config.ConfigError) as told:
        start(tmp_path, other)
    assert "pool.slots = 128 then, 64 now; seed = 0 then, 3 now" in str(told.value)
    start(tmp_path, BEGUN)  # the refused one left no trace


def test_another_checkout_of_the_project_may_go_on(tmp_path, monkeypatch):
    for root in ("/one/place", "/another"):
        monkeypatch.setattr(claim, "_ROOT", root)
        start(tmp_path, with_(seed_environments=f"{root}/experiments/mine"))
    with pytest.raises(config.ConfigError, match="'experiments/mine' then, '/elsewhere/mine' now"):
        start(tmp_path, with_(seed_environments="/elsewhere/mine"))


def test_iterations_rise_and_do_not_fall(tmp_path):
    start(tmp_path, BEGUN)
    start(tmp_path, with_(iterations=10))
    with pytest.raises(config.ConfigError, match="iterations = 10 then, 9 now"):
        start(tmp_path, with_(iterations=9))


def test_what_changes_no_result_is_free(tmp_path):
    start(tmp_path, BEGUN)
    start(
        tmp_path,
        with_(
            checkpoint=checkpoint.CheckpointConfig(every=7, keep_period=2),
            sandbox=settings.SandboxConfig(tier="subprocess", boxes=1),
            evaluate=settings.EvaluateConfig(every=2),
        ),
    )
    with pytest.raises(config.ConfigError, match="evaluate.instances"):
        start(tmp_path, with_(evaluate=settings.EvaluateConfig(instances=2)))


def test_a_section_that_is_new_is_told_as_absent(tmp_path):
    start(tmp_path, BEGUN)
    with pytest.raises(config.ConfigError, match=r"corpus.max_words = \(absent\) then, 400 now"):
        start(tmp_path, with_(corpus=settings.corpus.CorpusConfig()))


@pytest.mark.parametrize("name", claim.LEFTOVERS)
def test_leftovers_of_an_unknown_run_are_not_used(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(config.ConfigError, match=f"holds {name} but no config.json"):
        start(tmp_path, BEGUN)


def test_a_damaged_record_is_told(tmp_path):
    (tmp_path / claim.NAME).write_text("{")
    with pytest.raises(config.ConfigError, match="damaged"):
        start(tmp_path, BEGUN)


def test_comparing_writes_nothing(tmp_path):
    assert claim.compare(tmp_path, BEGUN) == []
    assert list(tmp_path.iterdir()) == []
