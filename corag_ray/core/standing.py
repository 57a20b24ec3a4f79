"""How far scores spread, and how well each chunk stands among others by two scores at once."""

from __future__ import annotations

import math
from collections.abc import Sequence


def spread(values: Sequence[float]) -> float:
    """The population's standard deviation; 0 of fewer than two values."""
    if len(values) < 2:
        return 0.0
    middle = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / len(values))


def worths(scores: Sequence[float], priors: Sequence[float]) -> list[float]:
    """For each chunk exp(-d), where d tells how far it stands behind the best: 1 is the best, near 0 are the worst.

    A chunk stands where the mean of its two standardised values is, its own score and its first-stage score: two
    judges that err apart. d counts in standard deviations of that mean, so that neither judge's scale matters.
    """
    stands = [(one + other) / 2 for one, other in zip(_standardised(scores), _standardised(priors), strict=True)]
    best = max(stands, default=0.0)
    unit = spread(stands) or 1.0
    return [math.exp((stand - best) / unit) for stand in stands]


def _standardised(values: Sequence[float]) -> list[float]:
    middle = math.fsum(values) / len(values) if values else 0.0
    unit = spread(values) or 1.0
    return [(value - middle) / unit for value in values]
