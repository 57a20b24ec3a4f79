"""Where direct labels go, so that none covers another."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """The nearest heights in 0..1 that keep their order and stand `gap` apart (pool adjacent violators)."""
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    pools: list[list[float]] = []  # labels that touch; a pool stands at its mean
    for rank, index in enumerate(order):
        pools.append([heights[index] - rank * gap])
        while len(pools) > 1 and fmean(pools[-2]) > fmean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    room = max(0.0, 1.0 - (len(heights) - 1) * gap)
    levels = [min(max(fmean(pool), 0.0), room) for pool in pools for _ in pool]
    placed = [0.0] * len(heights)
    for rank, index in enumerate(order):
        placed[index] = levels[rank] + rank * gap
    return placed
