"""The course of one search: what it has chosen at each limit of pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from corag_ray.build import build_method
from corag_ray.config import Method
from corag_ray.core.drive import ScoreRound, drive_lockstep
from corag_ray.core.strategy import Candidates, Strategy
from corag_ray.errors import ProtocolError
from corag_ray.evaluation.evidence import evidence_recall
from corag_ray.indexing.open_index import OpenIndex
from corag_ray.models.cosines import similarity
from corag_ray.models.protocols import Reranker
from corag_ray.scoring import SCORE_DECIMALS
from corag_ray.types import Combination
from jobs.budgets.searching import Query, Remembered
from jobs.search.rows import Point


def remembered(query: Query, reranker: Reranker[Any]) -> Remembered:
    """What the reranker says of a query, prepared."""
    return Remembered(reranker, reranker.prepare(query.question.text, query.chunks, query.rows))


def seen_by(query: Query, reranker: Reranker[Any], index: OpenIndex | None = None) -> Candidates:
    """The query's candidates as a search over this reranker sees them; with similarities where an index is given."""
    cosines = similarity(index.dense.vectors(query.rows), SCORE_DECIMALS) if index is not None else ()
    return replace(query.candidates, order_matters=reranker.order_sensitive, similarity=cosines)


def course_of(
    query: Query, known: Remembered, method: Method, seen: Candidates, budget_tokens: int, limits: Sequence[int]
) -> list[Point]:
    """What a method's search has chosen at each limit of pairs, which rise."""
    search = new_search(method, seen, budget_tokens)
    points: list[Point] = []
    pairs = 0
    for limit in limits:
        # A limit ends a search as a deadline would: it can be driven on, and its course is that without the limit.
        [more] = drive_lockstep([search], score_for(search, known), in_flight=1, pair_limit=limit - pairs)
        pairs += more
        best = search.best()
        points.append(_point(query, known, limit, pairs, () if best is None else best[0]))
    return points


def new_search(method: Method, seen: Candidates, budget_tokens: int) -> Strategy:
    """A fresh search; `seen` has similarities where any of the methods reads them."""
    built = build_method(method, seed=0)
    if built.new_strategy is None:
        raise ProtocolError("a method that is compared has a strategy.")
    return built.new_strategy(seen if built.needs_similarity else replace(seen, similarity=()), budget_tokens)


def score_for(search: Strategy, known: Remembered) -> ScoreRound:
    """Scores as the pipeline tells them to this search, rounded."""
    return _told(known, lambda score: score.raw if search.reading == "raw" else score.calibrated)


def _told(known: Remembered, read: Callable[[Any], float]) -> ScoreRound:
    def score(asked: list[tuple[int, Combination]]) -> list[float | None]:
        values = [read(one) for one in known.score([combination for _, combination in asked])]
        return [round(value, SCORE_DECIMALS) if math.isfinite(value) else None for value in values]

    return score


def _point(query: Query, known: Remembered, limit: int, pairs: int, selection: Combination) -> Point:
    chosen = [query.chunks[number] for number in selection]
    raw = known.score([selection])[0].raw if selection else math.nan
    return Point(
        limit=limit,
        pairs=pairs,
        score=round(raw, SCORE_DECIMALS + 1) if math.isfinite(raw) else None,
        tokens=sum(chunk.cost for chunk in chosen),
        recall=evidence_recall(query.question.evidence, chosen),
    )
