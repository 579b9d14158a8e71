"""The nearest of many programs is found without comparing with all, also after removals."""

import numpy as np

from spade_jax import fingerprints, neighbours

K = fingerprints.PERMUTATIONS


def signature(rng):
    return rng.integers(0, 2**32, K, dtype=np.uint32)


def changed(signature_K, share, rng):
    """A signature that differs in `share` of its entries."""
    places = rng.permutation(K)[: round(share * K)]
    other = signature_K.copy()
    other[places] = rng.integers(0, 2**32, len(places), dtype=np.uint32)
    return other


def test_a_near_copy_among_many_strangers_is_found_with_its_similarity():
    rng = np.random.default_rng(0)
    found = neighbours.Neighbours()
    members = [signature(rng) for _ in range(1000)]
    for i, member in enumerate(members):
        neighbours.add(found, i, f"d{i}", member)
    assert neighbours.nearest(found, members[17]) == 1.0
    # 26 of 128 entries differ: similarity 102/128. Some of 32 bands of 4 is whole, all but surely.
    assert neighbours.nearest(found, changed(members[900], 26 / 128, rng)) == 102 / 128
    assert neighbours.nearest(found, signature(rng)) == 0.0
    assert neighbours.nearest(neighbours.Neighbours(), members[0]) == 0.0


# What is left after a random mix of additions and removals answers like a table of all members.
def test_any_order_of_additions_and_removals_leaves_what_is_there():
    rng = np.random.default_rng(1)
    found, there = neighbours.Neighbours(), {}
    families = [signature(rng) for _ in range(6)]  # members of one share most of their bands
    for member in range(600):
        if there and rng.random() < 0.45:
            gone = int(rng.choice(list(there)))
            neighbours.remove(found, gone)
            del there[gone]
        made = changed(families[rng.integers(6)], rng.uniform(0, 0.2), rng)
        neighbours.add(found, member, f"d{member % 50}", made)
        there[member] = made
        asked = changed(families[rng.integers(6)], 0.1, rng)
        exact = max(fingerprints.similarity(asked, np.stack(list(there.values()))))
        if exact >= 0.7:
            assert neighbours.nearest(found, asked) == exact
    members = sorted(member for members in found.digests.values() for member in members)
    assert members == sorted(there)
    assert len(found.signatures) < 600  # rows are used again


def test_a_member_without_signature_is_known_by_its_digest_alone():
    found = neighbours.Neighbours()
    neighbours.add(found, 4, "d", None)
    assert found.digests == {"d": (4,)}
    neighbours.remove(found, 4)
    assert found.digests == {}


def test_a_signature_survives_being_spelt():
    made = signature(np.random.default_rng(2))
    assert np.array_equal(fingerprints.from_text(fingerprints.to_text(made)), made)
    assert fingerprints.from_text("") is None
