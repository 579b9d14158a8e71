"""How many different programs there are in effect: Vendi scores.

The Vendi score of n things with similarity matrix K (ones on its diagonal) is exp of the entropy of
the eigenvalues of K / n: 1 where all are alike, n where all differ. Given as a share of n here.
Source: Friedman and Dieng, The Vendi score (arXiv:2210.02410).
"""

from __future__ import annotations

import ast
import re
import zlib
from collections.abc import Sequence

import numpy as np

from spade_jax import fingerprints

WIDTH = 512  # of a hashed bag of words


def vendi(similarity_NN: np.ndarray) -> float:
    """Score a similarity matrix, as a share of its size; 0 for an empty one."""
    n = len(similarity_NN)
    if n == 0:
        return 0.0
    eigenvalues = np.linalg.eigvalsh(similarity_NN / n)
    positive = eigenvalues[eigenvalues > 1e-12]
    return float(np.exp(-(positive * np.log(positive)).sum()) / n)


def of_structure(trees: Sequence[ast.Module]) -> float:
    """Score programs by their normalised syntax: shared shingles of the tree.

    A MinHash estimate of the Jaccard similarity is a mean of equality kernels, hence a kernel.
    """
    if not trees:
        return 0.0
    signatures_NK = np.stack([fingerprints.signature(tree) for tree in trees])
    return vendi(np.stack([fingerprints.similarity(one, signatures_NK) for one in signatures_NK]))


def of_words(sources: Sequence[str]) -> float:
    """Score programs by an embedding of their text: hashed words, rare ones weighing more."""
    if not sources:
        return 0.0
    counts_NW = np.zeros((len(sources), WIDTH))
    for row, source in zip(counts_NW, sources, strict=True):
        for word in re.findall(r"[A-Za-z]{2,}|\d+", source):
            row[zlib.crc32(word.lower().encode()) % WIDTH] += 1
    documents_W = (counts_NW > 0).sum(0)
    weighted_NW = np.log1p(counts_NW) * np.log((1 + len(sources)) / (1 + documents_W) + 1.0)
    norm_N1 = np.linalg.norm(weighted_NW, axis=1, keepdims=True)
    unit_NW = weighted_NW / np.where(norm_N1 > 0, norm_N1, 1.0)
    similarity_NN = unit_NW @ unit_NW.T
    np.fill_diagonal(similarity_NN, 1.0)
    return vendi(similarity_NN)
