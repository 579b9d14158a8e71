"""Configs become frozen dataclasses, and nothing unknown or mistyped gets through."""

import dataclasses
import enum
from typing import Literal

import ml_collections
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_jax import config


class Scale(enum.Enum):
    EQUAL = "equal"
    REFERENCE = "reference"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arm:
    name: str = "plain"
    weight: float = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rollout:
    plays: int
    turn_seconds: float = 5.0
    cap: int | None = None
    std: Literal["population", "sample", "none"] = "population"
    scale: Scale = Scale.EQUAL
    buckets: tuple[int, ...] = (64, 128)
    pair: tuple[int, str] = (1, "a")
    arms: tuple[Arm, ...] = (Arm(),)
    refused: dict[str, float] = dataclasses.field(default_factory=lambda: {"text": -1.0})
    shuffle: bool = False
    target: float | Literal["auto"] = "auto"

    def __post_init__(self):
        if self.plays < 2:
            raise ValueError(f"plays={self.plays}: a group needs a baseline. Set plays >= 2.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    rollout: Rollout
    seed: int = 0
    extra: Arm | None = None


def test_defaults_fill_what_is_not_given():
    built = config.build(Experiment, {"rollout": {"plays": 4}})
    assert built == Experiment(rollout=Rollout(plays=4))


def test_unknown_key_names_its_path_and_the_nearest_knob():
    with pytest.raises(config.ConfigError) as error:
        config.build(Experiment, {"rollout": {"plays": 4, "turn_second": 1.0}})
    assert "rollout.turn_second is not a knob" in str(error.value)
    assert "Did you mean rollout.turn_seconds?" in str(error.value)


def test_unknown_key_is_found_in_another_section():
    with pytest.raises(config.ConfigError, match=r"turn_secs is not.*mean rollout.turn_seconds\?"):
        config.build(Experiment, {"rollout": {"plays": 4}, "turn_secs": 1.0})
    with pytest.raises(config.ConfigError, match=r"rollout.sed is not a knob. Did you mean seed\?"):
        config.build(Experiment, {"rollout": {"plays": 4, "sed": 1}})
    with pytest.raises(config.ConfigError, match=r"run.rollout.ply is.*mean run.rollout.plays\?"):
        config.build(Experiment, {"rollout": {"ply": 4}}, path="run")


def test_knobs_are_the_dotted_names_of_the_tree():
    names = config.knobs(Experiment)
    assert {"rollout", "rollout.plays", "seed", "extra.weight"} <= set(names)
    message = config.explain_unknown(Experiment, "rolout.plays")
    assert message == (
        "rolout.plays is not a knob. Did you mean rollout.plays? There is no section 'rolout'."
    )


def test_unknown_key_that_is_near_nothing_lists_the_knobs():
    with pytest.raises(config.ConfigError, match="stand: rollout, seed, extra"):
        config.build(Experiment, {"zzzzzz": 1})


@pytest.mark.parametrize(
    "section, message",
    [
        ({"plays": 4.0}, "rollout.plays=4.0 is a float; it must be int"),
        ({"plays": True}, "rollout.plays=True is a bool; it must be int"),
        ({"plays": 4, "turn_seconds": "5"}, "rollout.turn_seconds='5' is a str; it must be float"),
        ({"plays": 4, "shuffle": 1}, "rollout.shuffle=1 is a int; it must be bool"),
        ({"plays": 4, "std": "sampel"}, "Did you mean sample?"),
        ({"plays": 4, "scale": "equals"}, "must be one of 'equal', 'reference'"),
        ({"plays": 4, "buckets": (1, "2")}, r"rollout.buckets\[1\]='2' is a str"),
        ({"plays": 4, "buckets": 64}, "rollout.buckets=64 is a int; it must be a tuple"),
        ({"plays": 4, "pair": (1,)}, "must be a tuple of 2 values"),
        (
            {"plays": 4, "arms": ({"nam": "x"},)},
            r"arms\[0\].nam is .*In section 'rollout.arms' stand: name, w",
        ),
        ({"plays": 4, "refused": {"text": "x"}}, "rollout.refused.text='x'"),
        ({"plays": 4, "target": "manual"}, "rollout.target='manual'"),
        ({}, r"rollout.plays has no value: it must be int.*--config.rollout.plays="),
        ({"plays": None}, "rollout.plays has no value"),
        ({"plays": 4, "turn_seconds": None}, "rollout.turn_seconds has no value"),
        ({"plays": 1}, "rollout: plays=1: a group needs a baseline"),
        (3, "rollout=3 is a int; it must be a section"),
    ],
)
def test_bad_value_is_refused_with_its_path(section, message):
    with pytest.raises(config.ConfigError, match=message):
        config.build(Experiment, {"rollout": section})


def test_whole_numbers_are_floats_and_lists_are_tuples():
    built = config.build(Rollout, {"plays": 2, "turn_seconds": 3, "buckets": [1, 2]})
    assert type(built.turn_seconds) is float and built.buckets == (1, 2)


def test_enum_is_given_by_value_name_or_member():
    for value in ("reference", "REFERENCE", Scale.REFERENCE):
        assert config.build(Rollout, {"plays": 2, "scale": value}).scale is Scale.REFERENCE


def test_defaults_of_a_class_start_an_experiment():
    values = config.to_config_dict(Experiment)
    values.lock()
    values.rollout.plays = 8
    values.rollout.cap = 3
    values.rollout.turn_seconds = 2
    assert config.build(Experiment, values) == Experiment(
        rollout=Rollout(plays=8, cap=3, turn_seconds=2.0)
    )


def test_unset_required_knob_of_a_class_is_missing():
    with pytest.raises(config.ConfigError, match="rollout.plays has no value"):
        config.build(Experiment, config.to_config_dict(Experiment))


def test_placeholder_keeps_its_type():
    values = config.to_config_dict(Experiment)
    with pytest.raises(TypeError):
        values.rollout.plays = "many"


arms = st.builds(Arm, name=st.text(), weight=st.floats(allow_nan=False))
experiments = st.builds(
    Experiment,
    seed=st.integers(),
    extra=st.none() | arms,
    rollout=st.builds(
        Rollout,
        plays=st.integers(min_value=2),
        cap=st.none() | st.integers(),
        std=st.sampled_from(["population", "sample", "none"]),
        scale=st.sampled_from(Scale),
        buckets=st.lists(st.integers()).map(tuple),
        pair=st.tuples(st.integers(), st.text()),
        arms=st.lists(arms, max_size=3).map(tuple),
        refused=st.dictionaries(
            st.text("abc_", min_size=1), st.floats(allow_nan=False), max_size=3
        ),
        shuffle=st.booleans(),
        target=st.just("auto") | st.floats(allow_nan=False),
    ),
)


@settings(deadline=None, max_examples=60)
@given(experiments)
def test_to_config_dict_then_build_is_identity(experiment):
    values = config.to_config_dict(experiment)
    values.lock()
    assert isinstance(values, ml_collections.ConfigDict)
    assert config.build(Experiment, values) == experiment


def test_describe_lists_dotted_names_in_field_order():
    text = config.describe(Experiment(rollout=Rollout(plays=4)))
    lines = text.splitlines()
    assert lines[0] == "rollout.plays = 4"
    assert "rollout.refused.text = -1.0" in lines
    assert lines[-2:] == ["seed = 0", "extra = None"]
