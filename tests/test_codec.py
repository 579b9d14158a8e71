"""Records survive the way through JSON, bit for bit."""

import collections
import json
import math

import pytest

from spade_jax import codec, records, rollout

REPLY = records.Reply(ids=(3, 1, 2), logps=(-0.1, -1e-30, -7.000000000000001), stopped=True)
EPISODE = records.Episode(
    environment=1, seed_index=0, play=2, arm=records.HINTED, seed=7,
    turns=(records.Turn(observed_ids=(5,), reply=REPLY, action="é", reward=1.0),),
    value=1.0, fault="", detail="", truncated=False, observation="a\nb",
)  # fmt: skip


def through_json(kind, value):
    return codec.decode(kind, json.loads(json.dumps(codec.encode(value))))


@pytest.mark.parametrize("value", [REPLY, EPISODE], ids=["reply", "episode"])
def test_a_record_comes_back_equal(value):
    assert through_json(type(value), value) == value


def test_optional_fields_counters_and_integer_keys_come_back():
    draft = records.Draft(
        uid=4, generation=0, skill="Optimization", difficulty="easy", prompt_ids=(1,),
        reply=REPLY, text="x", source=None, version=0,
    )  # fmt: skip
    assert through_json(records.Draft, draft) == draft
    played = rollout.Played(
        episodes=[EPISODE], hint_refusals=collections.Counter(none=2), dropped=1,
        leaks_N={3: 0.5}, transcripts=[("a", "b")], processes=1,
    )  # fmt: skip
    assert through_json(rollout.Played, played) == played


def test_numbers_that_are_not_finite_come_back():
    assert math.isnan(through_json(float, math.nan))
    assert through_json(list[float], [math.inf, 0.1]) == [math.inf, 0.1]


def test_a_value_that_json_cannot_carry_is_refused():
    with pytest.raises(TypeError, match="function"):
        codec.encode(lambda: None)
