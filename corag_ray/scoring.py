"""From what strategies ask to reranker calls: merged by reranker, deduplicated, rounded, timed."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
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
    rerankers: Mapping[str, Reranker[Any]],
    searches: Sequence[ScoringContext],
    pairs: Sequence[tuple[int, Combination]],
    reranker_ms: defaultdict[str, float] | None = None,
) -> list[float | None]:
    """Score (search number, combination) pairs: one call a reranker, each distinct (query, combination) once.

    Returns one value a pair in its order, rounded to 3 decimals; `None` where the reranker's answer is not finite.
    What each reranker's call took is added to `reranker_ms`, where that is given.
    """
    calls: dict[str, dict[tuple[int, Combination], list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, (number, combination) in enumerate(pairs):
        search = searches[number]
        calls[search.reranker][id(search.prepared), combination].append(place)
    values: list[float | None] = [None] * len(pairs)
    for name, wanted in calls.items():
        firsts = [places[0] for places in wanted.values()]
        started = time.perf_counter()
        scores = rerankers[name].score([(searches[pairs[i][0]].prepared, pairs[i][1]) for i in firsts])
        if reranker_ms is not None:
            reranker_ms[name] += (time.perf_counter() - started) * 1000.0
        if len(scores) != len(firsts):
            raise ProtocolError(f"reranker '{name}' gave {len(scores)} scores for {len(firsts)} pairs.")
        for score, places in zip(scores, wanted.values(), strict=True):
            for place in places:
                value = score.raw if searches[pairs[place][0]].reading == "raw" else score.calibrated
                values[place] = round(value, SCORE_DECIMALS) if math.isfinite(value) else None
    return values


def shared_ms(
    searches: Sequence[ScoringContext], pairs: Sequence[int], reranker_ms: Mapping[str, float], total_ms: float
) -> list[float]:
    """Each search's share of the time that all took together, by the pairs that it asked for.

    A reranker's time is shared by the searches that ask it, the rest of `total_ms` by all.
    """
    asked: Counter[str] = Counter()
    for search, number in zip(searches, pairs, strict=True):
        asked[search.reranker] += number
    rest_a_pair = (total_ms - sum(reranker_ms.values())) / max(1, asked.total())
    a_pair = {name: reranker_ms.get(name, 0.0) / max(1, number) + rest_a_pair for name, number in asked.items()}
    return [number * a_pair[search.reranker] for search, number in zip(searches, pairs, strict=True)]
