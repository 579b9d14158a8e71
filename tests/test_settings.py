"""What only two sections together can get wrong is refused before a run begins."""

import dataclasses

import pytest

from spade_jax import credit, learn, settings

REFERENCE = learn.LearnConfig(credit=credit.CreditConfig(role_scale="reference"))


def run(mode="self_play", design=(), batch=(), rollout=(), **changes):
    base = settings.RunConfig()
    return dataclasses.replace(
        base,
        mode=mode,
        design=dataclasses.replace(base.design, **dict(design)),
        batch=dataclasses.replace(base.batch, **dict(batch)),
        rollout=dataclasses.replace(base.rollout, **dict(rollout)),
        **changes,
    )


@pytest.mark.parametrize(
    ("changes", "knob"),
    [
        ({"design": {"max_tokens": 256}}, "design.max_tokens=256"),
        ({"rollout": {"context_tokens": 257}}, "rollout.context_tokens=257"),
        ({"rollout": {"temperature": 0.0}}, "rollout.temperature=0.0"),
        ({"design": {"temperature": 0.0}}, "design.temperature=0.0"),
        ({"iterations": -1}, "iterations=-1"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(changes, knob):
    with pytest.raises(ValueError, match=f"^{knob}.*[Ss]et"):
        run(**changes)


@pytest.mark.parametrize("shared", [{"ratio": "sequence"}, {"importance": "sequence"}])
def test_turns_rendered_anew_share_no_ratio(shared):
    objective = dataclasses.replace(learn.LearnConfig().objective, **shared)
    rows = {"learn": dataclasses.replace(learn.LearnConfig(), objective=objective)}
    run(**rows)
    with pytest.raises(ValueError, match="history='rendered' with objective.*Use 'token'"):
        run(rollout={"history": "rendered"}, **rows)


def test_knobs_that_a_mode_does_not_use_are_not_checked():
    run(mode="fixed_pool", design={"max_tokens": 256})
    run(mode="supervised", rollout={"context_tokens": 257})


def test_the_reference_factor_takes_the_life_of_a_generation():
    given = run(design={"every": 3}, learn=REFERENCE)
    assert given.learn.credit.interval == 0
    assert given.learning().credit.interval == 3
    assert given.learning() == dataclasses.replace(
        REFERENCE, credit=dataclasses.replace(REFERENCE.credit, interval=3)
    )


def test_two_lives_of_a_generation_must_agree():
    twice = dataclasses.replace(REFERENCE, credit=dataclasses.replace(REFERENCE.credit, interval=4))
    run(design={"every": 4}, learn=twice)
    with pytest.raises(ValueError, match="learn.credit.interval=4 and design.every=1"):
        run(learn=twice)


@pytest.mark.parametrize("address", ["head", "head:", ":6379", "head:port"])
def test_an_address_of_a_fleet_names_host_and_port(address):
    with pytest.raises(ValueError, match="sandbox.fleet=.*HOST:PORT"):
        settings.SandboxConfig(fleet=address)
    assert settings.SandboxConfig(fleet="head:6379").fleet == "head:6379"


def test_only_a_fixed_pool_is_shuffled():
    shuffled = settings.pool.PoolConfig(order="shuffle")
    settings.RunConfig(mode="fixed_pool", pool=shuffled)
    with pytest.raises(ValueError, match="pool.order='shuffle'"):
        settings.RunConfig(pool=shuffled)
