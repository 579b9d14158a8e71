"""Numbers that do not add up stop the run, and the message holds them."""

import collections

import numpy as np
import pytest

from spade_jax import ledger

COUNTS = {
    "generated": 12, "trained_designer": 2, "trained_agent": 5, "masked_hinted": 4,
    "masked_infra_fault": 1, "masked_empty": 0,
}  # fmt: skip


def test_what_adds_up_passes_and_names_what_was_masked():
    masked = ledger.check_batch(10, 2, COUNTS, planned=13, dropped=3)
    assert masked == collections.Counter({"hinted": 4, "infra_fault": 1})


@pytest.mark.parametrize(
    "change",
    [
        {"episodes": 9},  # an episode has vanished
        {"planned": 14},  # a planned play was not made
        {"dropped": 2},  # a play was dropped without a count
        {"credited": 3},  # a draft was credited and not trained
        {"counts": COUNTS | {"trained_agent": 6}},
        {"counts": COUNTS | {"masked_infra_fault": 0}},
        {"counts": COUNTS | {"masked_new_reason": 1}},
    ],
)
def test_a_sequence_without_a_place_stops_the_run(change):
    given = {"episodes": 10, "credited": 2, "counts": COUNTS, "planned": 13, "dropped": 3}
    with pytest.raises(ledger.LedgerError, match="planned=.*trained="):
        ledger.check_batch(**(given | change))


def report(designer, agent, unpaid, overlong=0):
    return {
        "trained_2": np.array([designer, agent], np.float32),
        "unpaid_drafts": unpaid,
        "overlong_plays": overlong,
    }


# 2 drafts and 5 plays went to the device, of 3 more plays without spread it may know the tokens.
def test_drafts_that_the_device_did_not_pay_are_masked():
    counts = COUNTS | {"masked_no_spread": 3}
    assert ledger.check_update(counts, report(2, 5, 0)) == collections.Counter()
    assert ledger.check_update(counts, report(1, 8, 1)) == collections.Counter({"unpaid": 1})
    assert ledger.check_update(counts, report(2, 4, 0, 1)) == collections.Counter({"overlong": 1})
    # An unpaid draft that the host masked itself is not masked twice.
    assert ledger.check_update(counts, report(2, 6, 1)) == collections.Counter()


@pytest.mark.parametrize("wrong", [(1, 5, 0), (3, 5, 0), (2, 4, 0), (2, 6, 0)])
def test_what_the_device_lost_or_made_up_stops_the_run(wrong):
    with pytest.raises(ledger.LedgerError, match="trained drafts="):
        ledger.check_update(COUNTS, report(*wrong))


def test_steps_left_out_again_and_again_stop_the_run():
    ledger.check_steps(4)
    with pytest.raises(ledger.DivergedError, match="learning_rate"):
        ledger.check_steps(5)


def test_drafts_are_accepted_refused_or_unchecked():
    ledger.check_drafts(written=5, accepted=2, refused=2, unchecked=1, unplaced=2)
    for wrong in ((6, 2, 2, 1, 0), (5, 2, 2, 1, 3), (5, 2, 2, 1, -1)):
        with pytest.raises(ledger.LedgerError, match="written="):
            ledger.check_drafts(*wrong)


def test_a_draft_waits_until_it_is_credited_once():
    ledger.check_waiting(before=3, written=4, credited=2, after=5)
    for wrong in ((3, 4, 2, 4), (3, 4, 3, 5), (2, 4, 2, 5)):
        with pytest.raises(ledger.LedgerError, match="waiting drafts"):
            ledger.check_waiting(*wrong)
