"""Wages: what each outcome earns, in both roles."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax import batch, credit, curriculum, records, wages
from spade_jax.policy import sharding

CURRICULUM = curriculum.CurriculumConfig(ages=2)
SLOTS = 8
SHAPE = batch.TableShape(environments=SLOTS, seeds=1, plays=4, drafts=10)
PAY = jax.jit(wages.pay, static_argnums=(2, 3))


def episode(n, g, value, fault="", arm=records.PLAIN):
    answer = records.Reply(ids=(3,), logps=(-1.0,), stopped=True)
    turn = records.Turn(observed_ids=(1,), reply=answer, action="", reward=0.0)
    return records.Episode(
        environment=n, seed_index=0, play=g, arm=arm, seed=0, turns=(turn,), value=float(value),
        fault=fault, detail="", truncated=False, observation="",
    )  # fmt: skip


def owed(slot=-1, fixed=0.0, skill=records.SKILLS[0], **more):
    answer = records.Reply(ids=(5, 6), logps=(-1.0, -1.0), stopped=True)
    written = records.Draft(
        uid=0, generation=0, skill=skill, difficulty="easy", prompt_ids=(1,), reply=answer,
        text="", source=None, version=0,
    )  # fmt: skip
    return batch.DraftCredit(draft=written, slot=slot, fixed=fixed, **more)


def settle(plays, credits, config=None, state=None, fresh=None, rows=None):
    rows = list(range(SLOTS)) if rows is None else rows
    fresh = {slot: 0 for slot in range(SLOTS)} if fresh is None else fresh
    made = batch.build(
        plays, credits, slots=rows, fresh=fresh, pool_slots=SLOTS, shape=SHAPE,
        config=batch.BatchConfig(row_tokens=8, rows_multiple=1),
        mesh=sharding.make_mesh(devices=jax.devices()[:1]),
    )  # fmt: skip
    before = curriculum.init(SLOTS, CURRICULUM) if state is None else state
    return PAY(before, made.batch, config or credit.CreditConfig(), CURRICULUM)


def plain(n, values, fault=""):
    return [episode(n, g, value, fault) for g, value in enumerate(values)]


def test_every_outcome_earns_its_own():
    """Without hints the blend is 0.6 plateau; plateau(1/4) = 1 - .15/.25 = .4."""
    plays = [
        *plain(0, [0, 0, 0, 0]),  # never solved: 0
        *plain(1, [1, 0, 0, 0]),  # now and then: .6 * .4
        *plain(2, [1, 1, 0, 0]),  # half: .6
        *plain(3, [1, 1, 1, 1]),  # always: 0
        *plain(4, [0, 0, 0, 0], fault="environment"),  # only faults: -(1 + .5)
        *plain(5, [1, 1, 0]),
        episode(5, 3, 0, fault="environment"),  # one of four: plateau(2/3) = 1 - .0667/.25
        *plain(6, [0, 0, 0, 0], fault="infra"),  # ours: masked, no number
    ]
    credits = [
        *(owed(slot) for slot in range(7)),
        owed(fixed=-0.5),  # refused by a check
        owed(fixed=-1.0),  # no program
        owed(fixed=-0.5, unchecked=True),  # nobody could judge it: masked
    ]
    _, paid = settle(plays, credits)
    partly = 0.6 * (1 - (2 / 3 - 0.6) / 0.25) - (1 + 0.5 / 4)
    np.testing.assert_allclose(
        paid["designer_raw_M"],
        [0.0, 0.24, 0.6, 0.0, -1.5, partly, 0.0, -0.5, -1.0, 0.0],
        atol=1e-6,
    )
    assert paid["designer_paid_M"].tolist() == [True] * 6 + [False, True, True, False]
    assert partly <= 0  # a flagged environment never earns
    masked = np.asarray(paid["designer_advantage_M"])[[6, 9]]
    assert masked.tolist() == [0, 0]
    assert np.asarray(paid["tokens_Q"])[:10].tolist() == [2] * 6 + [0, 2, 2, 0]
    assert int(paid["unpaid_drafts"]) == 1  # judged, but all its plays were lost by us
    # centred over the drafts that are paid, refused ones included
    np.testing.assert_allclose(np.asarray(paid["designer_advantage_M"]).sum(), 0, atol=1e-5)


def test_masked_plays_do_not_vote():
    plays = [episode(0, 0, 1), episode(0, 1, 1, "infra"), episode(0, 2, 0), episode(0, 3, 0)]
    _, paid = settle(plays, [], credit.CreditConfig(std="none"))
    np.testing.assert_allclose(
        paid["agent_advantage_NSG"][0, 0], [2 / 3, 0, -1 / 3, -1 / 3], atol=1e-6
    )
    _, paid = settle(plays[:2], [])
    np.testing.assert_array_equal(paid["agent_advantage_NSG"], np.zeros((SLOTS, 1, 4)))


def test_hinted_plays_do_not_enter_the_groups():
    hinted = [episode(0, g, 1, arm=records.HINTED) for g in range(4)]
    _, paid = settle(plain(0, [1, 0, 0, 0]) + hinted, [])
    np.testing.assert_allclose(
        paid["agent_advantage_NSG"][0, 0], [3**0.5] + [-(3**-0.5)] * 3, atol=1e-5
    )


def test_credit_looks_at_the_whole_life():
    # first iteration 0/4, second 4/4: the draft is paid for 1/2
    state, _ = settle(plain(0, [0, 0, 0, 0]), [])
    _, paid = settle(plain(0, [1, 1, 1, 1]), [owed(0), owed(fixed=-1.0)], state=state, fresh={})
    np.testing.assert_allclose(paid["designer_raw_M"][:2], [0.6, -1.0], atol=1e-6)


def test_a_new_environment_does_not_inherit_the_old_one_in_its_slot():
    state, _ = settle(plain(0, [0, 0, 0, 0]), [])
    _, paid = settle(plain(0, [1, 1, 0, 0]), [owed(0)], state=state, fresh={0: 0})
    np.testing.assert_allclose(paid["designer_raw_M"][0], 0.6, atol=1e-6)


def test_penalty_is_subtracted_and_refused_drafts_pay_none():
    credits = [owed(0, penalty=0.25), owed(fixed=-0.5, penalty=0.25)]
    _, paid = settle(plain(0, [1, 1, 0, 0]), credits)
    np.testing.assert_allclose(paid["designer_raw_M"][:2], [0.35, -0.5], atol=1e-6)


def test_a_negative_blend_without_penalty_is_masked():
    # frontier weight 1: -(.5^2) / .08 at win rate 0
    config = credit.CreditConfig(frontier_weight=1.0)
    _, paid = settle(plain(0, [0, 0, 0, 0]), [owed(0), owed(0, penalty=0.1)], config)
    assert paid["designer_paid_M"][:2].tolist() == [False, True]


def test_regret_pays_raw_or_shrunken():
    # slot 0: gap 1 over one seed of 4 + 4; slot 1: gap 0. One iteration each.
    hints = [episode(n, g, 1, arm=records.HINTED) for n in (0, 1) for g in range(4)]
    plays = plain(0, [0, 0, 0, 0]) + plain(1, [1, 1, 1, 1]) + hints
    raw = settle(plays, [owed(0), owed(1)], credit.CreditConfig(variant="regret", estimate="raw"))
    shrunk = settle(plays, [owed(0), owed(1)], credit.CreditConfig(variant="regret"))
    np.testing.assert_allclose(raw[1]["designer_raw_M"][:2], [1, 0], atol=1e-6)
    assert 0.9 < float(shrunk[1]["designer_raw_M"][0]) < 1.0


def test_learning_potential_compares_with_what_was_known_before():
    config = credit.CreditConfig(variant="learning_potential")
    state, paid = settle(plain(0, [1, 0, 0, 0]), [owed(0)], config)
    # nothing was known: the first value sets the tracker, distance 0
    np.testing.assert_allclose(paid["designer_raw_M"][0], 0.0, atol=1e-6)
    _, paid = settle(plain(1, [1, 1, 1, 1]), [owed(1)], config, state=state, fresh={1: 0})
    np.testing.assert_allclose(paid["designer_raw_M"][0], 0.75, atol=1e-6)


@pytest.mark.parametrize("weights", [(0.5, 2.0)])
def test_role_weights_set_the_root_mean_squares(weights):
    config = credit.CreditConfig(designer_weight=weights[0], agent_weight=weights[1])
    credits = [owed(0), owed(fixed=-0.5), owed(fixed=-1.0)]
    _, paid = settle(plain(0, [1, 1, 0, 0]), credits, config)
    # the agent's own is 1 for the group 1, 1, 0, 0
    np.testing.assert_allclose(paid["advantage_rms_2"], weights, rtol=1e-5)


def test_one_group_does_not_touch_another():
    _, one = settle(plain(0, [1, 0, 0, 0]) + plain(1, [1, 1, 0, 0]), [])
    _, other = settle(plain(0, [1, 0, 0, 0]) + plain(1, [0, 0, 0, 1]), [])
    np.testing.assert_array_equal(one["agent_advantage_NSG"][0], other["agent_advantage_NSG"][0])
    assert jnp.any(one["agent_advantage_NSG"][1] != other["agent_advantage_NSG"][1])


def test_masked_long_plays_are_left_out_and_counted():
    long = dataclasses.replace(episode(0, 3, 1), turns=episode(0, 3, 1).turns * 3)
    given = credit.CreditConfig(overlong="mask", max_reply_tokens=2, std="none")
    _, paid = settle([*plain(0, [1, 0, 0]), long], [], given, rows=[0])
    assert int(paid["overlong_plays"]) == 1
    # 1, 0, 0 vote: the long win does not
    np.testing.assert_allclose(paid["agent_advantage_NSG"][0, 0], [2 / 3, -1 / 3, -1 / 3, 0], 1e-5)
    assert paid["tokens_Q"][SHAPE.drafts : SHAPE.drafts + 4].tolist() == [1, 1, 1, 0]


def test_parts_of_the_blend_are_told_for_drafts_that_were_played():
    # Means 0 and then 1: mean 1/2, variance 1/4, a rise of 1 over two ages, no hinted plays.
    state, _ = settle(plain(0, [0, 0, 0, 0]), [])
    owing = [owed(0), owed(fixed=-1.0), owed(3)]  # played, refused, never drawn
    _, paid = settle(plain(0, [1, 1, 1, 1]), owing, state=state, fresh={})
    expected = {
        "regret": 0.0, "plateau": 1.0, "progress": 10.0, "frontier": 0.0, "late_minus_early": 1.0,
        "variance": 0.25,
    }  # fmt: skip
    assert {name for name in paid if name.startswith("part_")} == {f"part_{n}_M" for n in expected}
    for name, value in expected.items():
        np.testing.assert_allclose(paid[f"part_{name}_M"][:3], [value, -1.0, -1.0], atol=1e-5)
