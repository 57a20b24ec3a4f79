"""Orders that do not depend on luck: best first, ties by chunk id."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

RRF_CONSTANT = 60
"""Cormack, Clarke and Buettcher (SIGIR 2009): the constant of reciprocal rank fusion."""


def top_rows(
    rows: NDArray[np.int64], scores: NDArray[np.floating], ids: NDArray[np.uint64], k: int
) -> list[tuple[int, float]]:
    """The best `k` of the given rows: (row, score), scores falling, ties by chunk id.

    `rows` and `scores` are [m]; `ids` [n] are the chunk ids of all rows.
    """
    if len(rows) > k > 0:  # keep everything that ties with the k-th, so that the cut is by id as well
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        keep = scores >= threshold
        rows, scores = rows[keep], scores[keep]
    order = np.lexsort((ids[rows], -scores))[:k]
    return [(int(rows[i]), float(scores[i])) for i in order]


def fuse(rankings: Sequence[Sequence[tuple[int, float]]], ids: NDArray[np.uint64], k: int) -> list[tuple[int, float]]:
    """Reciprocal rank fusion: the sum of 1 / (60 + rank) over the rankings that hold a row, ranks counted from 1."""
    fused: dict[int, float] = {}
    for ranking in rankings:
        for rank, (row, _) in enumerate(ranking, start=1):
            fused[row] = fused.get(row, 0.0) + 1.0 / (RRF_CONSTANT + rank)
    rows = np.fromiter(fused.keys(), dtype=np.int64, count=len(fused))
    scores = np.fromiter(fused.values(), dtype=np.float64, count=len(fused))
    return top_rows(rows, scores, ids, k)
