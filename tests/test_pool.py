"""Slots are given, drawn and remembered by rule, and the pool survives a checkpoint whole."""

import collections
import dataclasses
import json
import pathlib

import fakes
import numpy as np
import pytest

from spade_jax import archive, memory, pool, records

CASES = json.loads((pathlib.Path(__file__).parent / "data" / "cases.json").read_text())
NAN = float("nan")


def waiting(uid, slot, due=0, reason=""):
    return pool.Waiting(draft=fakes.draft(uid), slot=slot, reason=reason, penalty=0.0, due=due)


def uids(made):
    return [pool.environment(made, int(p)).uid for p in pool.alive(made)]


def examples(made, skill, positives, negatives, rng):
    found = memory.candidates(pool.memory_view(made), skill, positives)
    return memory.examples(found, positives, negatives, rng, made.archive.read)


def view(made):
    return memory.remembered(pool.memory_view(made), made.archive.read)


def filled(config, *, generations=None, win_rates=None, scores=None, retired=None, **changes):
    """A pool whose slot p holds environment p."""
    size = config.slots
    made = pool.empty(config)
    generations = generations or [0] * size
    environments = [fakes.environment(p, generation=generations[p], **changes) for p in range(size)]
    assert pool.admit(made, environments, config) == list(range(size))
    pool.settle(
        made, win_rates or [0.5] * size, [0.1] * size, scores or [0.0] * size,
        retired or [False] * size,
    )  # fmt: skip
    return made


def test_admission_takes_a_free_slot_then_a_retired_one_then_the_oldest():
    config = pool.PoolConfig(slots=3)
    made = pool.empty(config)
    assert pool.admit(made, [fakes.environment(n) for n in range(2)], config) == [0, 1]
    pool.settle(made, [0.5, 0.5, NAN], [0.0] * 3, [0.0] * 3, [False, True, False])
    # 2 is free; 1 is retired; of 0 and those just given none but 0 may go; then all are taken.
    assert pool.admit(made, [fakes.environment(n) for n in range(2, 6)], config) == [2, 1, 0, -1]
    assert uids(made) == [4, 3, 2]
    assert not made.retired_P.any() and np.isnan(made.win_rate_P).all()


def test_the_oldest_goes_first_whatever_its_slot():
    config = pool.PoolConfig(slots=3)
    made = filled(config)
    assert pool.admit(made, [fakes.environment(7)], config) == [0]
    assert pool.admit(made, [fakes.environment(8)], config) == [1]
    assert pool.admit(made, [fakes.environment(9)], config) == [2]
    assert pool.admit(made, [fakes.environment(10)], config) == [0]


def test_admission_never_takes_a_slot_whose_draft_waits():
    config = pool.PoolConfig(slots=3)
    made = filled(config, retired=[True, False, False])
    made.waiting = [waiting(0, 0), waiting(1, 1), waiting(9, -1, reason="syntax")]
    assert pool.admit(made, [fakes.environment(7), fakes.environment(8)], config) == [2, -1]
    assert uids(made) == [0, 1, 7]
    pool.release(made, [made.waiting[0]])
    assert [w.draft.uid for w in made.waiting] == [1, 9]
    assert pool.admit(made, [fakes.environment(8)], config) == [0]


def test_credit_falls_due_in_its_iteration_and_all_of_it_at_the_last():
    made = pool.empty(pool.PoolConfig(slots=1))
    made.waiting = [waiting(0, 0, due=1), waiting(1, -1, due=2), waiting(2, -1, due=4)]
    due = [[w.draft.uid for w in pool.due(made, t, last=False)] for t in range(4)]
    assert due == [[], [0], [0, 1], [0, 1]]
    assert len(pool.due(made, 0, last=True)) == 3


def test_what_the_last_update_credits_is_played_before_it():
    made = filled(pool.PoolConfig(slots=2))
    made.waiting = [waiting(0, slot=0, due=0), waiting(1, slot=1, due=3), waiting(2, slot=-1)]
    made.win_rate_P[:] = np.nan
    assert pool.unplayed(made, 0, last=False) == [0]
    assert pool.unplayed(made, 0, last=True) == [0, 1]


def test_a_draw_is_without_replacement_and_the_same_for_the_same_stream():
    config = pool.PoolConfig(slots=12, newest_share=0.5)
    made = filled(config, generations=[0] * 6 + [1] * 6, scores=list(range(12)))
    for seed in range(50):
        drawn = pool.draw(made, 8, config, np.random.default_rng(seed))
        assert drawn == pool.draw(made, 8, config, np.random.default_rng(seed))
        assert len(set(drawn)) == 8 and drawn == sorted(drawn)
        assert all(type(p) is int for p in drawn)
        assert sum(p >= 6 for p in drawn) >= 4


def test_the_newest_share_is_drawn_evenly_though_the_table_could_hold_them_all():
    # 8 places, half for the newest generation of 8: each of them should come 200 times in 400 draws
    # through the share alone, the standard error is 10. The others have the far better scores.
    config = pool.PoolConfig(slots=16, newest_share=0.5)
    made = filled(config, generations=[0] * 8 + [1] * 8, scores=[9.0] * 8 + [0.0] * 8)
    config = dataclasses.replace(config, temperature=0.05)  # nearly always the best ranks
    rng = np.random.default_rng(3)
    counts = collections.Counter(p for _ in range(400) for p in pool.draw(made, 8, config, rng))
    assert all(150 < counts[p] < 250 for p in range(8, 16))


def test_the_newest_take_no_more_than_their_share_while_older_ones_fill_the_rest():
    config = pool.PoolConfig(slots=16, newest_share=0.5)
    made = pool.empty(config)
    pool.admit(made, [fakes.environment(n) for n in range(6)], config)
    made.score_P[:6] = 0.1  # played, and worth little; whoever nobody played scores 1
    pool.admit(made, [fakes.environment(n, generation=1) for n in range(6, 14)], config)
    for seed in range(20):
        drawn = pool.draw(made, 8, config, np.random.default_rng(seed))
        assert sum(slot >= 6 for slot in drawn) == 4
    # three older ones are left: they do not fill four places, so that all others compete
    made.retired_P[:3] = True
    drawn = pool.draw(made, 8, config, np.random.default_rng(0))
    assert len(drawn) == 8 and not set(drawn) & {0, 1, 2}


def test_without_a_newest_share_the_best_scores_play():
    config = pool.PoolConfig(slots=16, newest_share=0.0, temperature=0.01)
    scores = [float(p % 4 == 0) * (p + 1) for p in range(16)]
    made = filled(config, scores=scores)
    assert pool.draw(made, 4, config, np.random.default_rng(0)) == [0, 4, 8, 12]


# Two slots, temperature 1: weights 1 and 1/2, so that the better one is first with p = 2/3; 3000
# draws have a standard error of 0.0086.
def test_probability_falls_with_the_rank():
    config = pool.PoolConfig(slots=2, newest_share=0.0, temperature=1.0)
    made = filled(config, scores=[0.1, 0.9])
    rng = np.random.default_rng(1)
    share = np.mean([pool.draw(made, 1, config, rng) == [1] for _ in range(3000)])
    assert abs(share - 2 / 3) < 0.03


def test_retired_slots_play_only_where_others_are_missing():
    config = pool.PoolConfig(slots=6, newest_share=0.5)
    made = filled(config, scores=[9.0, 9, 9, 0, 0, 0], retired=[True] * 3 + [False] * 3)
    for seed in range(20):
        assert pool.draw(made, 3, config, np.random.default_rng(seed)) == [3, 4, 5]
        assert set(pool.draw(made, 5, config, np.random.default_rng(seed))) >= {3, 4, 5}


def test_a_steep_draw_from_a_large_pool_has_no_weight_of_zero():
    config = pool.PoolConfig(slots=256, newest_share=0.0, temperature=0.001)
    made = filled(config, retired=[True] * 256)
    assert len(set(pool.draw(made, 200, config, np.random.default_rng(0)))) == 200


def test_a_draw_takes_what_is_alive():
    config = pool.PoolConfig(slots=4)
    made = pool.empty(config)
    rng = np.random.default_rng(0)
    assert pool.draw(made, 3, config, rng) == []
    pool.admit(made, [fakes.environment(0)], config)
    assert pool.draw(made, 3, config, rng) == [0]


def remembered(case):
    """A pool of one slot through which the environments of a case have passed, oldest first."""
    given = case["input"]
    config = pool.PoolConfig(slots=1, memory=given["max_size"])
    made = pool.empty(config)
    for number, entry in enumerate(given["add"]):
        source = f"# {entry['game_file']}\n".ljust(given["code_length"], "x")
        new = fakes.environment(number, skill=given["skill"], source=source)
        assert pool.admit(made, [new], config) == [0]
        pool.settle(made, [entry["win_rate"]], [entry["regret"]], [0.0], [False])
    pool.admit(made, [fakes.environment(99, skill=given["skill"])], config)
    return made


def file_of(entry):
    return entry.source.split("\n")[0].removeprefix("# ")


def memory_case():
    group = next(g for g in CASES["groups"] if g["id"] == "environment_memory")
    (case,) = group["cases"]
    return case


def test_memory_keeps_the_newest_and_offers_the_cases_candidates():
    case = memory_case()
    expected, made = case["expected"], remembered(case)
    assert [file_of(entry) for entry in view(made)] == expected["kept"]
    skill, rng = case["input"]["skill"], np.random.default_rng(0)
    positives, negatives = examples(made, skill, 9, 9, rng)
    assert sorted(map(file_of, positives)) == expected["positive_candidates"]
    assert sorted(map(file_of, negatives)) == expected["negative_candidates"]
    assert examples(made, "another", 9, 9, rng) == ([], [])


def test_the_memory_file_has_the_public_keys_and_a_cut_program():
    case = memory_case()
    written = memory.public_file(view(remembered(case)))
    assert [list(item) for item in written] == [case["expected"]["record_keys"]] * 5
    assert {len(item["code_snippet"]) for item in written} == {case["expected"]["snippet_length"]}
    rates = [item["actor_win_rate"] for item in written]
    assert rates == pytest.approx([0.95, 0.15, 0.85, 0.86, 0.3])
    assert written[0]["game_file"] == "game_00000_002_logic.py"
    assert json.loads(json.dumps(written, allow_nan=False)) == written


def test_a_seed_environment_has_a_name_of_its_own_and_nan_becomes_null():
    entry = memory.Remembered(
        uid=-4, source="x", skill="Causal Inference", generation=-1, win_rate=NAN, regret=NAN
    )
    (written,) = memory.public_file([entry])
    assert written["game_file"] == "seed_004_causal_inference.py"
    assert written["actor_win_rate"] is None and written["regret"] is None


# The band is closed, [0.15, 0.85]; negatives lie outside [0.1, 0.9].
@pytest.mark.parametrize(
    ("win_rate", "kind"),
    [(0.0, "negative"), (0.0999, "negative"), (0.1, ""), (0.1499, ""), (0.15, "positive"),
     (0.85, "positive"), (0.8501, ""), (0.9, ""), (0.9001, "negative"), (NAN, "")],
)  # fmt: skip
def test_candidates_at_the_edges_of_the_bands(win_rate, kind):
    config = pool.PoolConfig(slots=1)
    made = filled(config, win_rates=[win_rate])
    found = examples(made, records.SKILLS[0], 1, 1, np.random.default_rng(0))
    assert (bool(found[0]), bool(found[1])) == (kind == "positive", kind == "negative")


def test_positives_come_from_the_best_by_regret():
    config = pool.PoolConfig(slots=30)
    made = filled(config)
    made.regret_P = np.arange(30, dtype=np.float32)
    rng = np.random.default_rng(0)
    drawn = [examples(made, records.SKILLS[0], 2, 0, rng) for _ in range(200)]
    assert {entry.uid for found, _ in drawn for entry in found} == set(range(20, 30))
    assert all(len({entry.uid for entry in found}) == 2 for found, _ in drawn)
    assert all(negatives == [] for _, negatives in drawn)


def test_memory_follows_the_newest_numbers_and_lists_a_program_once():
    config = pool.PoolConfig(slots=2)
    made = filled(config)
    copied = fakes.environment(9, digest=fakes.environment(0).digest)
    pool.admit(made, [copied], config)
    pool.settle(made, [0.25, 0.5], [0.0, 0.0], [0.0, 0.0], [False, False])
    assert sorted((entry.uid, entry.win_rate) for entry in view(made)) == [(1, 0.5), (9, 0.25)]
    assert [made.archive.read(n).uid for n in made.memory.number_H] == [0]


def test_no_memory_is_kept_where_none_is_wanted():
    config = pool.PoolConfig(slots=1, memory=0)
    made = filled(config)
    pool.admit(made, [fakes.environment(9)], config)
    assert len(made.memory) == 0 and view(made) == []
    assert set(made.known.digest_of) == {1}


def test_what_left_pool_and_memory_is_no_longer_known():
    config = pool.PoolConfig(slots=2, memory=1)
    made = filled(config)
    pool.admit(made, [fakes.environment(7), fakes.environment(8)], config)
    # 0 and 1 left the pool together, memory holds one: the later of them.
    assert [made.archive.read(n).uid for n in made.memory.number_H] == [1]
    assert sorted(made.known.digests) == sorted(fakes.environment(n).digest for n in (1, 7, 8))
    pool.admit(made, [fakes.environment(9)], config)  # takes the slot of 7, which nobody played
    assert sorted(made.known.digests) == sorted(fakes.environment(n).digest for n in (1, 8, 9))


def saved(tmp_path):
    config = pool.PoolConfig(slots=3)
    path = tmp_path / "programs.jsonl"
    made = pool.empty(config, archive.Archive(path))
    pool.admit(made, [fakes.environment(n) for n in range(3)], config)
    pool.settle(made, [0.5, NAN, 0.25], [0.1] * 3, [0.0] * 3, [False] * 3)
    pool.admit(made, [fakes.environment(7, hint="add", similarity=0.5)], config)
    pool.note_hint(made, 2, fakes.environment(2, hint="subtract"))
    made.waiting = [waiting(7, 0, due=3), waiting(8, -1, due=3, reason="syntax")]
    return config, path, made


def test_the_pool_survives_a_checkpoint_whole(tmp_path):
    config, path, made = saved(tmp_path)
    text = json.dumps(pool.to_json(made))
    again = pool.from_json(json.loads(text), path)
    assert json.dumps(pool.to_json(again)) == text
    found = [[pool.environment(one, p) for p in range(3)] for one in (made, again)]
    assert found[0] == found[1] and found[0][2].hint == "subtract"
    assert again.waiting == made.waiting and view(again) == view(made)
    assert again.known.digests == made.known.digests
    assert np.isnan(again.win_rate_P[:2]).all()
    admitted = [pool.admit(one, [fakes.environment(9)], config) for one in (made, again)]
    assert admitted == [[1], [1]]
    draws = [pool.draw(one, 2, config, np.random.default_rng(0)) for one in (made, again)]
    assert draws[0] == draws[1]


def test_a_continued_pool_cuts_off_programs_written_after_its_checkpoint(tmp_path):
    config, path, made = saved(tmp_path)
    values, size = pool.to_json(made), path.stat().st_size
    pool.admit(made, [fakes.environment(50, class_name="Lost")], config)
    longer = path.stat().st_size
    reader = pool.from_json(values, path)
    assert [pool.environment(reader, 0).uid] == [7] and path.stat().st_size == longer > size
    pool.admit(reader, [fakes.environment(51)], config)
    assert b"Lost" not in path.read_bytes()
    assert [json.loads(line)["uid"] for line in path.read_text().splitlines()] == [0, 1, 2, 7, 51]


def test_a_checkpoint_whose_programs_are_missing_says_so(tmp_path):
    _, path, made = saved(tmp_path)
    values = pool.to_json(made)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(archive.ArchiveError, match="holds 3 whole programs, the checkpoint count"):
        pool.from_json(values, path)


@pytest.mark.parametrize(
    ("field", "value"), [("newest_share", 1.5), ("slots", 0), ("memory", -1), ("temperature", 0.0)]
)
def test_a_setting_that_cannot_work_is_refused_with_its_name(field, value):
    with pytest.raises(ValueError, match=f"pool.{field}={value}"):
        pool.PoolConfig(**{field: value})


def test_columns_come_back_whether_little_or_much_of_them_is_in_use(tmp_path):
    made = pool.empty(pool.PoolConfig(slots=40), archive.Archive(tmp_path / "programs.jsonl"))
    made.win_rate_P[[3, 39]] = 0.25, 0.0  # two of forty: written alone
    made.leak_P[:] = np.arange(40) / 40  # written whole
    made.banned_P[7] = True
    values = json.loads(json.dumps(pool.to_json(made)))
    kinds = {name: type(column) for name, column in values["columns"].items()}
    assert kinds["leak_P"] is str
    assert kinds["win_rate_P"] is kinds["banned_P"] is kinds["number_P"] is list
    again = pool.from_json(values, tmp_path / "programs.jsonl")
    for name in ("number_P", "win_rate_P", "score_P", "leak_P", "banned_P", "blind_P"):
        before, after = getattr(made, name), getattr(again, name)
        np.testing.assert_array_equal(before, after)
        assert before.dtype == after.dtype and after.flags.writeable


@pytest.mark.parametrize(("slots", "count"), [(10, 4), (12, 4), (5, 5), (3, 8)])
def test_a_shuffled_pool_plays_each_slot_once_before_any_again(slots, count):
    config = pool.PoolConfig(slots=slots + 2)  # two stay free
    made = pool.empty(config)
    pool.admit(made, [fakes.environment(n) for n in range(slots)], config)

    def table(iteration, seed=0):
        return pool.shuffled(made, count, iteration, lambda r: np.random.default_rng([seed, r]))

    played = [table(t) for t in range(15)]
    assert all(len(set(row)) == min(count, slots) and max(row) < slots for row in played)
    times = collections.Counter()
    for row in played:
        times.update(row)
        # after any number of tables no slot is more than one play ahead of another
        assert max(times.values()) - min(times[slot] for slot in range(slots)) <= 1
    assert table(7) == played[7]  # it depends on the iteration alone
    if count < slots:
        assert [table(t, seed=1) for t in range(15)] != played


def test_an_empty_pool_is_shuffled_to_nothing():
    made = pool.empty(pool.PoolConfig(slots=2))
    assert pool.shuffled(made, 4, 3, np.random.default_rng) == []
