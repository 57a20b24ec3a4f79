"""Regret to CORAG Upper: a few candidates, of which at most five chunks are chosen, whatever they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from corag_ray.config import Method, PlainStrategy
from corag_ray.core.strategy import Candidates
from jobs.budgets.curves import DECIMALS, Estimate, estimate
from jobs.budgets.searching import Query, Remembered
from jobs.search.contestants import OURS
from jobs.search.course import course_of

MAX_CHUNKS = 5
PAIRS = 40
UPPER, SINGLE = "upper", "single"


def scores_of(query: Query, known: Remembered, methods: Mapping[str, Method], few: Candidates) -> dict[str, float]:
    """By strategy the score of what it chose of a few candidates with 40 pairs; the best single's and Upper's too."""
    seen = in_chunks(few)
    upper = Method(
        strategy=PlainStrategy(kind="exhaustive", changes={"num_candidates": len(few), "max_chunks": MAX_CHUNKS})
    )
    told = {SINGLE: max(score.raw for score in known.score([(number,) for number in range(len(few))]))}
    for name, method in {UPPER: upper, **methods}.items():
        limit = 10**6 if name == UPPER else PAIRS
        [point] = course_of(query, known, method, seen, MAX_CHUNKS, [limit])
        told[name] = told[SINGLE] if point.score is None else point.score
    return told


def first_of(candidates: Candidates, number: int) -> Candidates:
    """The first few candidates."""
    return Candidates(
        costs=candidates.costs[:number],
        priors=candidates.priors[:number],
        documents=candidates.documents[:number],
        positions=candidates.positions[:number],
        similarity=tuple(row[:number] for row in candidates.similarity[:number]),
        order_matters=candidates.order_matters,
    )


def in_chunks(candidates: Candidates) -> Candidates:
    """Each costs 1, so that a budget counts chunks."""
    return replace(candidates, costs=(1,) * len(candidates))


def figures_of(told: Sequence[Mapping[str, float]], seed: int) -> dict[str, dict[str, Any]]:
    """By strategy its regret, Upper's score less its own, and the share that it closes of the gap from single to Upper.

    The share is that of the sums over questions: a question without a gap weighs nothing.
    """
    gap = sum(one[UPPER] - one[SINGLE] for one in told)
    names = [name for name in told[0] if name != UPPER]
    regrets: dict[str, Estimate] = {n: estimate([one[UPPER] - one[n] for one in told], seed) for n in names}
    closed = {name: sum(one[name] - one[SINGLE] for one in told) / gap if gap else 1.0 for name in names}
    return {name: {"regret": regrets[name], "closed": round(closed[name], DECIMALS)} for name in names}


def holds(figures: Mapping[str, Mapping[str, Any]]) -> bool:
    """The bar: ours closes at least 95 % of the gap."""
    return bool(figures[OURS]["closed"] >= 0.95)
