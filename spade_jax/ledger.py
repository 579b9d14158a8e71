"""Conservation of counts: everything generated is trained, waits, or is masked with a reason.

In: what an iteration wrote, played, batched and still holds. Out: nothing, or an error that stops
the run: numbers that do not add up mean that rewards can no longer be trusted.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

from spade_jax import records

MOST_SKIPPED = 5  # iterations in a row that may skip optimiser steps


class LedgerError(RuntimeError):
    """Counts of an iteration do not add up."""


class DivergedError(RuntimeError):
    """The update gives no finite numbers any more."""


def check_drafts(written: int, accepted: int, refused: int, unchecked: int, unplaced: int) -> None:
    """Every draft is accepted, refused or could not be checked; accepted ones may lack a slot."""
    if written != accepted + refused + unchecked or not 0 <= unplaced <= accepted:
        raise LedgerError(
            f"drafts: written={written} but accepted={accepted} + refused={refused} + "
            f"unchecked={unchecked}; without a slot {unplaced}. This is a fault of the program: "
            "please report it with the work directory."
        )


def check_waiting(before: int, written: int, credited: int, after: int) -> None:
    """Every draft waits until it is credited once."""
    if before + written != credited + after:
        raise LedgerError(
            f"waiting drafts: {before} before + {written} written is not {credited} credited + "
            f"{after} after. This is a fault of the program: please report it."
        )


def check_batch(
    episodes: int, credited: int, counts: Mapping[str, int], planned: int, dropped: int
) -> collections.Counter:
    """Every episode and credited draft is trained or masked; every planned play happened.

    Args:
      counts: of `batch.build`: generated, trained_designer, trained_agent, masked_<reason>.
      planned: plays asked for; dropped: hinted plays left out because no hint might be shown.
    Returns:
      masked sequences by reason.
    """
    masked = collections.Counter(
        {key[7:]: n for key, n in counts.items() if key.startswith("masked_") and n}
    )
    trained = counts.get("trained_designer", 0) + counts.get("trained_agent", 0)
    generated = episodes + credited
    if planned != episodes + dropped or generated != trained + masked.total():
        raise LedgerError(
            f"sequences: planned={planned}, played={episodes}, dropped={dropped}; generated="
            f"{generated} but trained={trained} + masked={dict(masked)}. This is a fault of the "
            "program: please report it with the work directory."
        )
    return masked


def check_update(counts: Mapping[str, int], report: Mapping[str, Any]) -> collections.Counter:
    """What the host handed over was trained on the device, or left out there with a reason.

    Args:
      counts: of `batch.build`.
      report: of `learn.update`, on the host.
    Returns:
      sequences that the device masked, by reason: "unpaid" for drafts whose environment nobody
      could value, "overlong" for plays dropped for their length. `counts` still has them as
      trained.
    """
    designer, agent = (int(report["trained_2"][role]) for role in (records.DESIGNER, records.AGENT))
    unpaid = counts.get("trained_designer", 0) - designer
    # Plays without spread have tokens in the table of sequences, unless their replies are empty.
    overlong = int(report["overlong_plays"])
    more = agent + overlong - counts.get("trained_agent", 0)
    flat = counts.get("masked_no_spread", 0)
    if not (0 <= unpaid <= int(report["unpaid_drafts"]) and 0 <= more <= flat):
        raise LedgerError(
            f"update: trained drafts={designer} of {counts.get('trained_designer', 0)} given, "
            f"unpaid={int(report['unpaid_drafts'])}; trained plays={agent} of "
            f"{counts.get('trained_agent', 0)} given, {overlong} too long and {flat} without "
            "spread. This is a fault of the program: please report it with the work directory."
        )
    return collections.Counter(
        {name: n for name, n in (("unpaid", unpaid), ("overlong", overlong)) if n}
    )


def check_steps(skipped_in_a_row: int) -> None:
    """Stop a run whose optimiser steps are left out again and again.

    Raises:
      DivergedError: MOST_SKIPPED iterations in a row had a gradient that is not finite.
    """
    if skipped_in_a_row >= MOST_SKIPPED:
        raise DivergedError(
            f"the gradient was not finite in {skipped_in_a_row} iterations in a row, so that "
            "optimiser steps were left out (train/skipped_steps in metrics.jsonl). Start again in "
            "another --workdir with a lower learn.learning_rate or learn.clip_norm."
        )
