"""Means that skip what is missing, and percentile bootstrap intervals around them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Drawn numbers held in memory at once; the resamples of a long column are drawn in blocks of this many.
_BLOCK = 4_000_000


@dataclass(frozen=True, slots=True)
class Interval:
    """The two ends of a confidence interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Mean of `a - b` over the `n` positions where both were measured; the ends are None when `n` is 1.

    `p_value` is that of the paired randomisation test, see `randomisation_p_value`.
    """

    mean_difference: float
    low: float | None
    high: float | None
    n: int
    p_value: float


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of what was measured; None when nothing was."""
    measured = [value for value in values if value is not None]
    return math.fsum(measured) / len(measured) if measured else None


def bootstrap_interval(
    values: Sequence[float | None], seed: int, resamples: int = 2000, level: float = 0.95
) -> Interval | None:
    """Percentile bootstrap interval of the mean of what was measured.

    Args:
        values: One value a question; None is left out.
        seed: Seed of the resampling: the same seed and values give the same interval.
        resamples: Number of bootstrap samples.
        level: Share of the bootstrap means that lies inside, in 0..1.

    Returns:
        None with fewer than two values: one value says nothing of the spread.
    """
    measured = np.array([value for value in values if value is not None], dtype=np.float64)
    if len(measured) < 2:
        return None
    low, high = np.quantile(_bootstrap_means(measured, seed, resamples), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def paired_bootstrap(
    a: Sequence[float | None], b: Sequence[float | None], seed: int, resamples: int = 2000, level: float = 0.95
) -> PairedDifference | None:
    """Mean difference of two columns over the same questions, with its percentile bootstrap interval.

    Args:
        a: One value a question.
        b: The other column, same length and order; a position counts where both hold a value.
        seed: Seed of the resampling.
        resamples: Number of bootstrap samples.
        level: Share of the bootstrap means that lies inside, in 0..1.

    Returns:
        None when the two columns share no measured position.
    """
    differences = [x - y for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    difference = mean(differences)
    if difference is None:
        return None
    interval = bootstrap_interval(differences, seed, resamples, level)
    low, high = (interval.low, interval.high) if interval else (None, None)
    return PairedDifference(difference, low, high, len(differences), randomisation_p_value(differences, seed))


def randomisation_p_value(differences: Sequence[float], seed: int, resamples: int = 10_000) -> float:
    """Two-sided p-value of the paired randomisation test (Fisher; for retrieval Smucker, Allan and Carterette, 2007).

    If the two methods were the same, each difference could as well have the other sign. The p-value is the share of
    sign assignments whose mean is at least as far from 0 as the one observed: of all 2^n assignments where they are no
    more than `resamples`, else of as many drawn ones, the observed one counted among them.
    """
    values = np.array(differences, dtype=np.float64)
    # Equal sums in another order must count as equal; a sum of 0 leaves as much rounding as any other.
    observed = abs(values.sum()) - 1e-12 * np.abs(values).sum()
    if len(values) <= int(math.log2(resamples)):
        patterns = np.arange(2 ** len(values))[:, None] >> np.arange(len(values)) & 1
        return float((np.abs((1 - 2 * patterns) @ values) >= observed).mean())
    generator = np.random.Generator(np.random.PCG64(seed))
    rows = max(1, _BLOCK // len(values))
    extreme = 0
    for start in range(0, resamples, rows):
        signs = 1 - 2 * generator.integers(2, size=(min(rows, resamples - start), len(values)), dtype=np.int8)
        extreme += int((np.abs(signs @ values) >= observed).sum())
    return (extreme + 1) / (resamples + 1)


def _bootstrap_means(values: NDArray[np.float64], seed: int, resamples: int) -> NDArray[np.float64]:
    """[resamples] means of samples drawn with replacement."""
    generator = np.random.Generator(np.random.PCG64(seed))
    size = len(values)
    rows = max(1, _BLOCK // size)
    blocks = [min(rows, resamples - start) for start in range(0, resamples, rows)]
    draws = (generator.integers(size, size=(block, size), dtype=np.int32) for block in blocks)
    return np.concatenate([values[draw].mean(axis=1) for draw in draws])
