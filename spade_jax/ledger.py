"""Conservation of counts: everything generated is trained, waits, or is masked with a reason.

In: what an iteration wrote, played, batched and still holds. Out: nothing, or an error that stops
the run: numbers that do not add up mean that rewards can no longer be trusted.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping

from spade_jax import records


class LedgerError(RuntimeError):
    """Counts of an iteration do not add up."""


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


def group_counts(episodes: list[records.Episode]) -> collections.Counter:
    """Count episodes by fault: "" for sound ones."""
    return collections.Counter(episode.fault for episode in episodes)
