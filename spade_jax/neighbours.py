"""Which programs are there, and how near a new one is to them, without comparing pair by pair.

Signatures are cut into bands; programs that share a band are compared, the newest first. Members of
similarity s share a band with probability 1 - (1 - s^4)^32: 0.9999 at s = 0.7, 0.87 at 0.5.
Adding, removing and asking cost the same in a pool of 100 as in one of 100,000.
Source: locality-sensitive hashing after Indyk and Motwani (1998) over MinHash (Broder, 1997).
"""

from __future__ import annotations

import dataclasses

import numpy as np

from spade_jax import fingerprints

ROWS = 4  # entries of a signature in one band
BANDS = fingerprints.PERMUTATIONS // ROWS
BUCKETS = 1 << 18  # of each band
LONGEST = 64  # members of one bucket that are compared, the newest ones
_BAND = np.arange(BANDS)


@dataclasses.dataclass
class Neighbours:
    """Members by number; a row of the tables belongs to each one that has a signature.

    Tables hold row + 1, and 0 for none, so that untouched parts cost no memory.
    """

    digests: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)  # -> members
    digest_of: dict[int, str] = dataclasses.field(default_factory=dict)  # by member
    rows: dict[int, int] = dataclasses.field(default_factory=dict)  # member -> row
    free: list[int] = dataclasses.field(default_factory=list)  # rows that members left
    heads: np.ndarray = dataclasses.field(  # [BANDS, BUCKETS] newest member of each bucket
        default_factory=lambda: np.zeros((BANDS, BUCKETS), np.int32)
    )
    older: np.ndarray = dataclasses.field(  # [rows, BANDS] next member of the bucket
        default_factory=lambda: np.zeros((256, BANDS), np.int32)
    )
    newer: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((256, BANDS), np.int32))
    buckets: np.ndarray = dataclasses.field(  # [rows, BANDS] where each member stands
        default_factory=lambda: np.zeros((256, BANDS), np.int32)
    )
    signatures: np.ndarray = dataclasses.field(  # [rows, K]
        default_factory=lambda: np.zeros((256, fingerprints.PERMUTATIONS), np.uint32)
    )


def add(found: Neighbours, member: int, digest: str, signature_K: np.ndarray | None) -> None:
    """Add a member; one without a signature is known by its digest alone."""
    found.digests[digest] = (*found.digests.get(digest, ()), member)
    found.digest_of[member] = digest
    if signature_K is None:
        return
    row = found.free.pop() if found.free else len(found.rows)
    if row >= len(found.signatures):
        for name in ("older", "newer", "buckets", "signatures"):
            table = getattr(found, name)
            setattr(found, name, np.concatenate([table, np.zeros_like(table)]))
    found.rows[member] = row
    found.signatures[row] = signature_K
    found.buckets[row] = place = _places(signature_K)
    first = found.heads[_BAND, place]
    found.older[row], found.newer[row] = first, 0
    met = first > 0
    found.newer[first[met] - 1, _BAND[met]] = row + 1
    found.heads[_BAND, place] = row + 1


def remove(found: Neighbours, member: int) -> None:
    """Forget a member."""
    digest = found.digest_of.pop(member)
    rest = tuple(other for other in found.digests[digest] if other != member)
    if rest:
        found.digests[digest] = rest
    else:
        del found.digests[digest]
    row = found.rows.pop(member, None)
    if row is None:
        return
    older, newer = found.older[row].copy(), found.newer[row].copy()
    last, inner = older > 0, newer > 0
    found.newer[older[last] - 1, _BAND[last]] = newer[last]
    found.older[newer[inner] - 1, _BAND[inner]] = older[inner]
    found.heads[_BAND[~inner], found.buckets[row][~inner]] = older[~inner]
    found.free.append(row)


def nearest(found: Neighbours, signature_K: np.ndarray) -> float:
    """Estimate the similarity to the nearest member that shares a band; 0 where none does."""
    at = found.heads[_BAND, _places(signature_K)]
    met = []
    for _ in range(LONGEST):
        here = at > 0
        if not here.any():
            break
        met.append(at[here] - 1)
        at = np.where(here, found.older[at - 1, _BAND], 0)
    if not met:
        return 0.0
    rows = np.unique(np.concatenate(met))
    return float(fingerprints.similarity(signature_K, found.signatures[rows]).max())


def _places(signature_K: np.ndarray) -> np.ndarray:
    """Give the bucket of each band."""
    return (fingerprints.bands(signature_K, ROWS) % np.uint64(BUCKETS)).astype(np.int32)
