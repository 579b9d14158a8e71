"""Batch: packing, masks, tables and counts."""

import json
import pathlib

import jax
import numpy as np
import pytest

from spade_jax import batch, packing, records
from spade_jax.policy import sharding

SHAPE = batch.TableShape(environments=2, seeds=1, plays=2, drafts=2)
CONFIG = batch.BatchConfig(row_tokens=12, rows_multiple=1)


def reply(*ids, stopped=True):
    return records.Reply(ids=ids, logps=tuple(-0.1 * i for i in ids), stopped=stopped)


def episode(n=0, g=0, arm=records.PLAIN, value=1.0, fault="", turns=None, **more):
    turns = turns or [((1, 2), reply(3, 4))]
    later = {"rendered": True} if more.pop("rendered", False) else {}
    return records.Episode(
        environment=n, seed_index=0, play=g, arm=arm, seed=7, value=value, fault=fault, detail="",
        observation="",
        turns=tuple(
            records.Turn(
                observed_ids=o, reply=r, action="", reward=0.0, malformed=bool(broken),
                **(later if k else {}),
            )
            for k, (o, r, *broken) in enumerate(turns)
        ),
        **({"truncated": False} | more),
    )  # fmt: skip


def draft(uid=0, prompt=(1,), answer=None, skill=records.SKILLS[2]):
    return records.Draft(
        uid=uid, generation=0, skill=skill, difficulty="easy", prompt_ids=prompt,
        reply=answer or reply(5, 6, 7), text="", source=None, version=0,
    )  # fmt: skip


def build(episodes, credits=(), slots=(3, 1), fresh=None, config=CONFIG, shape=SHAPE, **more):
    mesh = sharding.make_mesh(devices=jax.devices()[:1])
    return batch.build(
        episodes, credits, slots=slots, fresh=fresh or {}, pool_slots=5, shape=shape,
        config=config, mesh=mesh, **more,
    )  # fmt: skip


def test_turns_are_joined_and_only_replies_are_trained():
    turns = [((1, 2), reply(3, 9)), ((4,), reply(5, 9))]
    made = build([episode(turns=turns)])
    row = {name: np.asarray(getattr(made.batch, f"{name}_BT"))[0, :8] for name in
           ("tokens", "mask", "logps", "positions", "segments", "roles", "sequences")}  # fmt: skip
    assert row["tokens"].tolist() == [1, 2, 3, 9, 4, 5, 9, 0]
    # the end token 9 that the policy emitted is trained, the first padding is not
    assert row["mask"].tolist() == [0, 0, 1, 1, 0, 1, 1, 0]
    np.testing.assert_allclose(row["logps"], [0, 0, -0.3, -0.9, 0, -0.5, -0.9, 0], atol=1e-6)
    assert row["positions"].tolist() == [0, 1, 2, 3, 4, 5, 6, 0]
    assert row["segments"].tolist() == [1] * 7 + [0]
    assert set(row["roles"][:7]) == {records.AGENT}
    assert set(row["sequences"][:7]) == {2}  # behind the two places for drafts


def test_turns_rendered_anew_are_rows_of_their_own_that_count_as_one_play():
    turns = [((1, 2), reply(3, 9)), ((1, 2, 3, 4), reply(5, 6, 9)), ((1, 7), reply(9))]
    made = build([episode(turns=turns, rendered=True), episode(g=1)])
    rows = {name: np.asarray(getattr(made.batch, f"{name}_BT")) for name in
            ("tokens", "mask", "positions", "segments", "sequences")}  # fmt: skip
    pieces = {
        (tuple(rows["tokens"][r][at].tolist()), tuple(rows["mask"][r][at].tolist()))
        for r in range(len(rows["tokens"]))
        for s in range(1, rows["segments"].max() + 1)
        if (at := (rows["segments"][r] == s) & (rows["sequences"][r] == 2)).any()
    }
    assert pieces == {
        ((1, 2, 3, 9), (0, 0, 1, 1)),
        ((1, 2, 3, 4, 5, 6, 9), (0, 0, 0, 0, 1, 1, 1)),
        ((1, 7, 9), (0, 0, 1)),
    }
    assert rows["positions"][rows["sequences"] == 2].max() == 6
    assert np.asarray(made.batch.tokens_Q)[2:4].tolist() == [6, 2]  # all turns share one weight
    assert made.counts["trained_agent"] == made.counts["generated"] == 2


def test_a_turn_that_fits_no_row_masks_its_whole_play():
    turns = [((1, 2), reply(3, 9)), (tuple(range(1, 12)), reply(5, 9))]
    made = build([episode(turns=turns, rendered=True), episode(g=1)])
    assert made.counts["masked_too_long"] == 1 and made.counts["trained_agent"] == 1
    assert 2 not in np.asarray(made.batch.sequences_BT)[np.asarray(made.batch.segments_BT) > 0]


def test_padding_equal_to_the_end_token_is_still_trained():
    # token 0 is both padding and the end token of this policy
    made = build([episode(turns=[((1,), reply(3, 0))])])
    assert np.asarray(made.batch.mask_BT)[0, :4].tolist() == [0, 1, 1, 0]


def test_first_fit_packs_the_longest_first():
    # lengths 8 (draft), 4, 4, 4: the draft and one play fill 12, the other two share a row
    long = draft(prompt=(1, 1, 1, 1, 1))
    plays = [episode(n, g) for n, g in ((0, 0), (0, 1), (1, 0))]
    made = build(plays, [batch.DraftCredit(draft=long)])
    segments = np.asarray(made.batch.segments_BT)
    assert segments.tolist() == [[1] * 8 + [2] * 4, [1] * 4 + [2] * 4 + [0] * 4]
    assert np.asarray(made.batch.sequences_BT)[0].tolist() == [0] * 8 + [2] * 4
    assert made.rows == 2
    assert made.real_share == 20 / 24


def test_packing_does_not_depend_on_the_order_of_episodes():
    plays = [episode(n, g) for n in (0, 1) for g in (0, 1)]
    one, other = build(plays), build(plays[::-1])
    for a, b in zip(jax.tree.leaves(one.batch), jax.tree.leaves(other.batch), strict=True):
        np.testing.assert_array_equal(a, b)


def test_returns_lie_where_their_play_was():
    made = build(
        [
            episode(0, 0, value=0.5),
            episode(0, 1, value=1.0, fault="environment"),
            episode(1, 0, value=0.0, fault="infra"),
            episode(1, 0, arm=records.HINTED, value=0.0, fault="too_long"),
            episode(1, 1, arm=records.HINTED, value=0.25),
            episode(1, 1, value=float("nan")),
        ]
    )
    returns, valid = np.asarray(made.batch.returns_NSGA), np.asarray(made.batch.valid_NSGA)
    assert returns[0, 0, 0, 0] == 0.5 and returns[1, 0, 1, 1] == 0.25
    assert np.argwhere(valid).tolist() == [[0, 0, 0, 0], [1, 0, 1, 1]]
    # infra faults and prompts that are too long are nobody's, a return that is no number is the
    # environment's
    assert np.argwhere(made.batch.faults_NSGA).tolist() == [[0, 0, 1, 0], [1, 0, 1, 0]]
    assert np.isfinite(returns).all()


def test_every_sequence_is_counted_once():
    made = build(
        [
            episode(0, 0),
            episode(0, 1, fault="environment"),
            episode(1, 0, fault="infra"),
            episode(1, 1, turns=[((1,) * 12, reply(3))]),  # 13 tokens
            episode(0, 0, arm=records.HINTED),
        ],
        [batch.DraftCredit(draft=draft()), batch.DraftCredit(draft=draft(1), unchecked=True)],
    )
    assert made.counts == {
        "generated": 7,
        "trained_designer": 1,
        "trained_agent": 1,
        "masked_environment_fault": 1,
        "masked_infra_fault": 1,
        "masked_too_long": 1,
        "masked_hinted": 1,
        "masked_unchecked": 1,
    }
    # masked sequences are real without tokens: they keep their place in the denominators
    assert np.asarray(made.batch.real_Q).tolist() == [True] * 6
    assert np.asarray(made.batch.tokens_Q).tolist() == [3, 0, 2, 0, 0, 0]
    assert float(made.batch.mask_BT.sum()) == 5
    assert np.asarray(made.batch.valid_M).tolist() == [True, False]


def test_a_play_whose_first_prompt_did_not_fit_is_masked_by_that_name():
    made = build([episode(0, 0), episode(0, 1, fault="too_long", turns=[])])
    assert made.counts["masked_too_long"] == 1 and made.counts["trained_agent"] == 1
    assert not np.asarray(made.batch.valid_NSGA)[0, 0, 1, 0]
    assert not np.asarray(made.batch.faults_NSGA).any()


def test_an_empty_reply_is_counted_and_not_trained():
    made = build([episode(turns=[((1, 2), reply())])])
    assert made.counts["masked_empty"] == 1 and made.counts["trained_agent"] == 0


def test_flat_groups_leave_the_rows_and_stay_in_the_denominators():
    plays = [episode(0, 0), episode(0, 1), episode(1, 0, value=1.0), episode(1, 1, value=0.0)]
    config = batch.BatchConfig(row_tokens=12, rows_multiple=1, drop_flat_groups=True)
    made = build(plays, config=config)
    assert made.counts["masked_no_spread"] == 2 and made.counts["trained_agent"] == 2
    assert np.asarray(made.batch.tokens_Q).tolist() == [0, 0, 2, 2, 2, 2]
    assert set(np.asarray(made.batch.sequences_BT)[0, :8]) == {4, 5}


def test_plays_that_were_cut_off_leave_the_rows_and_stay_in_baseline_and_denominators():
    plays = [episode(0, 0), episode(0, 1, value=0.0, truncated=True), episode(1, 0)]
    plays += [episode(1, 1, fault="infra", truncated=True)]
    config = batch.BatchConfig(row_tokens=12, rows_multiple=1, drop_truncated=True)
    kept, left_out = build(plays), build(plays, config=config)
    assert kept.counts["trained_agent"] == 3 and kept.counts["masked_truncated"] == 0
    assert left_out.counts["trained_agent"] == 2 and left_out.counts["masked_truncated"] == 1
    for made in (kept, left_out):
        sorts = ("trained_agent", "masked_truncated", "masked_infra_fault", "masked_hinted")
        assert made.counts["generated"] == sum(made.counts[sort] for sort in sorts) == 4
    # two tokens each: the second play of the first environment has none left, its place is real,
    # and its return 0 is valid, so that it still stands in its group's mean
    assert np.asarray(left_out.batch.tokens_Q).tolist() == [0, 0, 2, 0, 2, 0]
    np.testing.assert_array_equal(left_out.batch.real_Q, kept.batch.real_Q)
    np.testing.assert_array_equal(left_out.batch.valid_NSGA, kept.batch.valid_NSGA)
    assert 3 not in np.asarray(left_out.batch.sequences_BT)


def test_a_reply_whose_call_cannot_be_read_is_not_trained_and_its_episode_is():
    mended = [((1, 2), reply(3, 9), True), ((4,), reply(5, 9))]
    lost = [((1,), reply(6, 9), True)]
    plays = [episode(0, 0, turns=mended), episode(0, 1, turns=lost)]
    plain = build(plays)
    assert plain.counts["trained_agent"] == 2
    assert np.asarray(plain.batch.tokens_Q).tolist() == [0, 0, 4, 2, 0, 0]
    config = batch.BatchConfig(row_tokens=12, rows_multiple=1, mask_malformed=True)
    made = build(plays, config=config)
    # tokens 1 2 3 9 4 5 9: of the first play only the second reply counts
    assert np.asarray(made.batch.mask_BT)[0, :7].tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert np.asarray(made.batch.tokens_Q).tolist() == [0, 0, 2, 0, 0, 0]
    assert np.asarray(made.batch.real_Q).tolist() == [False, False, True, True, False, False]
    assert made.counts["trained_agent"] == 1 and made.counts["masked_malformed"] == 1
    assert made.counts["masked_empty"] == 0


def test_tables_of_drafts_and_slots():
    credits = [
        batch.DraftCredit(draft=draft(), slot=3, penalty=0.2, temperature=0.7),
        batch.DraftCredit(draft=draft(1, skill=records.TOOL_SKILLS[4]), fixed=-0.5),
    ]
    made = build([episode()], credits, fresh={3: 2}, agent_temperature=0.9)
    b = made.batch
    assert np.asarray(b.slot_M).tolist() == [3, -1]
    np.testing.assert_allclose(b.fixed_M, [0, -0.5])
    np.testing.assert_allclose(b.penalty_M, [0.2, 0])
    assert np.asarray(b.skill_M).tolist() == [2, 4]
    assert np.asarray(b.slots_N).tolist() == [3, 1]
    assert np.asarray(b.reset_P).tolist() == [False, False, False, True, False]
    assert np.asarray(b.skill_P).tolist() == [0, 0, 0, 2, 0]
    np.testing.assert_allclose(b.temperature_Q, [0.7, 1.0, 0.9, 0.9, 0.9, 0.9])
    assert np.asarray(b.roles_Q).tolist() == [0, 0, 1, 1, 1, 1]
    assert np.asarray(b.index_Q).tolist() == [0, 1, 0, 1, 2, 3]


def test_an_empty_iteration_is_a_batch_of_padding():
    made = build([], slots=())
    assert made.rows == 1 and made.counts["generated"] == 0
    assert not np.asarray(made.batch.real_Q).any()


@pytest.mark.parametrize(
    "rows,expected", [(0, 4), (1, 4), (5, 8), (17, 20), (61, 64), (65, 72), (129, 144)]
)
def test_buckets_grow_in_eighths(rows, expected):
    # units of 4 rows: 1 2 ... 15 16 18 20 ... 32 36 ...
    assert batch.bucket(rows, batch.BatchConfig(rows_multiple=4)) == expected


def test_nine_in_ten_slots_of_a_recorded_iteration_are_real():
    """Lengths of drafts and plays of the quickstart's first iteration."""
    path = pathlib.Path(__file__).parent / "data" / "quickstart_lengths.json"
    kept = json.loads(path.read_text())
    lengths = [*kept["drafts"], *kept["plays"]]
    config = batch.BatchConfig(row_tokens=kept["row_tokens"], rows_multiple=kept["rows_multiple"])
    rows = packing.fit(lengths, config.row_tokens)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    assert max(sum(lengths[i] for i in row) for row in rows) <= config.row_tokens
    assert sum(lengths) >= 0.9 * batch.bucket(len(rows), config) * config.row_tokens


def test_given_buckets_are_used_and_must_suffice():
    config = batch.BatchConfig(rows_multiple=4, rows=(8, 64))
    assert [batch.bucket(rows, config) for rows in (1, 8, 9)] == [8, 8, 64]
    with pytest.raises(ValueError, match="batch.rows"):
        batch.bucket(65, config)


@pytest.mark.parametrize(
    "setting", [{"row_tokens": 1}, {"rows_multiple": 0}, {"rows": (12,)}, {"rows": (16, 8)}]
)
def test_bad_settings_raise(setting):
    with pytest.raises(ValueError, match="batch."):
        batch.BatchConfig(**setting)


def test_what_does_not_fit_raises():
    with pytest.raises(ValueError, match="occurs 2 times"):
        build([episode(), episode()])
    with pytest.raises(ValueError, match="episode"):
        build([episode(n=2)])
    with pytest.raises(ValueError, match="do not fit"):
        build([], [batch.DraftCredit(draft=draft(i)) for i in range(3)])
    with pytest.raises(ValueError, match="pool.slots"):
        build([], slots=(5,))
    with pytest.raises(ValueError, match="starts with a reply"):
        build([episode(turns=[((), reply(3))])])
    with pytest.raises(ValueError, match="skill"):
        build([], [batch.DraftCredit(draft=draft(skill="Juggling"))])
    broken = records.Reply(ids=(1, 2), logps=(0.0,), stopped=True)
    with pytest.raises(ValueError, match="log-probabilities"):
        build([episode(turns=[((1,), broken)])])
