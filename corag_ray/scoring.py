"""From what strategies ask to reranker calls: merged by reranker, deduplicated, rounded."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corag_ray.core.strategy import Reading
from corag_ray.errors import ProtocolError
from corag_ray.models.protocols import Reranker
from corag_ray.types import Combination

SCORE_DECIMALS = 3
"""Scores are rounded before a strategy sees them, so that the last bits of a sum decide nothing."""


@dataclass(frozen=True, slots=True)
class ScoringContext:
    """What a search needs to have its combinations scored: its reranker, the prepared query, the value it reads."""

    reranker: str
    prepared: Any
    reading: Reading


def score_pairs(
    rerankers: Mapping[str, Reranker[Any]], searches: Sequence[ScoringContext], pairs: Sequence[tuple[int, Combination]]
) -> list[float | None]:
    """Score (search number, combination) pairs: one call a reranker, each distinct (query, combination) once.

    Returns one value a pair in its order, rounded to 3 decimals; `None` where the reranker's answer is not finite.
    """
    calls: dict[str, dict[tuple[int, Combination], list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, (number, combination) in enumerate(pairs):
        search = searches[number]
        calls[search.reranker][id(search.prepared), combination].append(place)
    values: list[float | None] = [None] * len(pairs)
    for name, wanted in calls.items():
        firsts = [places[0] for places in wanted.values()]
        scores = rerankers[name].score([(searches[pairs[i][0]].prepared, pairs[i][1]) for i in firsts])
        if len(scores) != len(firsts):
            raise ProtocolError(f"reranker '{name}' gave {len(scores)} scores for {len(firsts)} pairs.")
        for score, places in zip(scores, wanted.values(), strict=True):
            for place in places:
                value = score.raw if searches[pairs[place][0]].reading == "raw" else score.calibrated
                values[place] = round(value, SCORE_DECIMALS) if math.isfinite(value) else None
    return values
