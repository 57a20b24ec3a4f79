"""What a search takes beside scoring, by candidates and budget, and what scoring singles takes a cross-encoder."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from corag_ray.config import Method
from corag_ray.core.drive import drive_lockstep
from corag_ray.models.protocols import Reranker
from corag_ray.types import Combination
from jobs.budgets.searching import Query, Remembered
from jobs.search.course import new_search, remembered, score_for, seen_by
from jobs.search.small import first_of

CANDIDATES, BUDGETS = (20, 60, 200), (512, 1024, 8192)
USUAL = 60
"""Candidates whose singles the cross-encoder is asked for."""
REPEATS = 3


def bookkeeping_ms(query: Query, known: Remembered, method: Method, candidates: int, budget_tokens: int) -> float:
    """Of one search, all but the calls of the reranker: the least of a few repeats, for other work disturbs it."""
    seen = first_of(seen_by(query, known.reranker), candidates)
    took: list[float] = []
    for _ in range(REPEATS):
        scoring = 0.0
        started = time.perf_counter()
        search = new_search(method, seen, budget_tokens)
        asked_for = score_for(search, known)

        def score(asked: list[tuple[int, Combination]], asked_for: Any = asked_for) -> list[float | None]:
            nonlocal scoring
            begun = time.perf_counter()
            told: list[float | None] = asked_for(asked)
            scoring += time.perf_counter() - begun
            return told

        drive_lockstep([search], score, in_flight=1)
        search.best()
        took.append((time.perf_counter() - started - scoring) * 1000.0)
    return min(took)


def measure(
    queries: Sequence[Query], scorer: Reranker[Any], cross_encoder: Reranker[Any], method: Method
) -> dict[str, Any]:
    """Median milliseconds a query by candidates and budget, and their share of a cross-encoder's over 60 singles."""
    known = [remembered(query, scorer) for query in queries]
    table = {
        f"{candidates}.{budget}": statistics.median(
            bookkeeping_ms(query, one, method, candidates, budget) for query, one in zip(queries, known, strict=True)
        )
        for candidates in CANDIDATES
        for budget in BUDGETS
    }
    singles = [_singles_ms(query, cross_encoder) for query in queries[: max(1, len(queries) // 4)]]
    usual = {str(budget): table[f"{USUAL}.{budget}"] / statistics.median(singles) for budget in BUDGETS}
    return {
        "queries": len(queries),
        "bookkeeping_ms": {name: round(value, 3) for name, value in table.items()},
        "cross_encoder_singles_ms": round(statistics.median(singles), 1),
        "share_of_singles": {budget: round(share, 5) for budget, share in usual.items()},
        "holds": max(usual.values()) < 0.02,
    }


def _singles_ms(query: Query, cross_encoder: Reranker[Any]) -> float:
    few = replace(query, chunks=query.chunks[:USUAL], rows=query.rows[:USUAL])
    started = time.perf_counter()
    prepared = cross_encoder.prepare(few.question.text, few.chunks, few.rows)
    cross_encoder.score([(prepared, (number,)) for number in range(len(few.chunks))])
    return (time.perf_counter() - started) * 1000.0
