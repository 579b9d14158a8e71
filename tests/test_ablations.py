"""Every ablation is one change to a configuration that builds."""

import pytest

from experiments import ablations
from spade_jax import config, credit, settings


@pytest.mark.parametrize("name", list(ablations.CHANGES))
def test_an_ablation_builds_and_differs_from_the_full_method_in_what_it_names(name):
    built = config.build(settings.RunConfig, ablations.get_config(name))
    full = config.build(settings.RunConfig, ablations.get_config("full"))
    assert (built == full) == (name in ("full", "no_memory")), name  # the small one has no memory


def test_the_faithful_preset_is_the_references_arithmetic():
    run = config.build(settings.RunConfig, ablations.get_config("faithful"))
    assert run.learn.credit == credit.CreditConfig(**credit.FAITHFUL)
    assert run.learning().credit.interval == run.design.every
    assert run.curriculum.regret_from == "first" and not run.design.train_refused


def test_an_unknown_ablation_names_those_that_exist():
    with pytest.raises(ValueError, match="no ablation 'none'; name one of full, fixed_pool"):
        ablations.get_config("none")
