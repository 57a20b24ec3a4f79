"""A question's searches, at all budgets together: what one has had scored is not computed again for another."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from corag_ray.build import build_method
from corag_ray.core.drive import drive_lockstep
from corag_ray.core.ranked import RankedParams
from corag_ray.core.strategy import Candidates, Strategy
from corag_ray.errors import ProtocolError
from corag_ray.indexing.open_index import OpenIndex
from corag_ray.models.protocols import Reranker
from corag_ray.scoring import SCORE_DECIMALS
from corag_ray.types import Chunk, Combination, Question, Score
from jobs.budgets.contestants import Contestant

SEARCHES_IN_FLIGHT = 64


@dataclass(frozen=True, slots=True)
class Query:
    """A question with the first stage's candidates from the whole corpus, as chunks and as rows of the store."""

    question: Question
    chunks: tuple[Chunk, ...]
    rows: tuple[int, ...]
    candidates: Candidates


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search selected; None where candidates would have fitted and none could be scored."""

    selection: tuple[Chunk, ...] | None
    pairs: int = 0
    unscored: int = 0


@dataclass(slots=True)
class Remembered:
    """What a reranker said of one query; a set counts once where the reranker does not see order."""

    reranker: Reranker[Any]
    prepared: Any
    scores: dict[Combination, Score] = field(default_factory=dict)

    def score(self, combinations: Sequence[Combination]) -> list[Score]:
        """One score a combination, in order."""
        keys = [c if self.reranker.order_sensitive else tuple(sorted(c)) for c in combinations]
        missing = list(dict.fromkeys(key for key in keys if key not in self.scores))
        found = self.reranker.score([(self.prepared, key) for key in missing]) if missing else []
        self.scores.update(zip(missing, found, strict=True))
        return [self.scores[key] for key in keys]


def query_of(question: Question, index: OpenIndex, num_candidates: int) -> Query:
    """The question's candidates, with costs as the index counts them: true for at most `COST_NUMBER` of them."""
    [hits] = index.first_stage.search([question.text], num_candidates)
    rows = tuple(row for row, _ in hits)
    chunks = tuple(index.store.take(rows))
    documents: dict[str, int] = {}
    candidates = Candidates(
        costs=tuple(chunk.cost for chunk in chunks),
        priors=tuple(score for _, score in hits),
        documents=tuple(documents.setdefault(chunk.doc_id, len(documents)) for chunk in chunks),
        positions=tuple(chunk.position for chunk in chunks),
    )
    return Query(question, chunks, rows, candidates)


def naive(query: Query, budget_tokens: int) -> Outcome:
    """The budget filled by first-stage rank; what no longer fits is passed over."""
    by_rank = [(number, -float(number)) for number in range(len(query.chunks))]
    chosen = RankedParams().fill(by_rank, query.candidates, budget_tokens)
    return Outcome(tuple(query.chunks[number] for number in chosen))


def searched(query: Query, reranker: Reranker[Any], wanted: Sequence[tuple[Contestant, int]]) -> list[Outcome]:
    """The outcomes of one reranker's contestants, each at a budget in tokens, in order.

    Raises:
        ProtocolError: the contestants' limits of pairs differ.
    """
    limits = {contestant.pair_limit for contestant, _ in wanted}
    if len(limits) != 1:
        raise ProtocolError(f"searches of one reranker have one limit of pairs, not {sorted(limits)}.")
    seen = replace(query.candidates, order_matters=reranker.order_sensitive)
    searches = [_new_strategy(contestant, seen, budget) for contestant, budget in wanted]
    known = Remembered(reranker, reranker.prepare(query.question.text, query.chunks, query.rows))
    unscored: Counter[int] = Counter()

    def score(asked: list[tuple[int, Combination]]) -> list[float | None]:
        found = known.score([combination for _, combination in asked])
        values: list[float | None] = []
        for (number, _), one in zip(asked, found, strict=True):
            value = one.raw if searches[number].reading == "raw" else one.calibrated
            values.append(round(value, SCORE_DECIMALS) if math.isfinite(value) else None)
            unscored[number] += values[-1] is None
        return values

    pairs = drive_lockstep(searches, score, in_flight=SEARCHES_IN_FLIGHT, pair_limit=limits.pop())
    return [
        Outcome(_selection(search, query, budget, unscored[number]), pairs[number], unscored[number])
        for number, (search, (_, budget)) in enumerate(zip(searches, wanted, strict=True))
    ]


def _new_strategy(contestant: Contestant, candidates: Candidates, budget_tokens: int) -> Strategy:
    make = build_method(contestant.method, seed=0).new_strategy  # no contestant's strategy draws
    if make is None:
        raise ProtocolError(f"'{contestant.name}' has no strategy.")
    return make(candidates, budget_tokens)


def _selection(search: Strategy, query: Query, budget_tokens: int, unscored: int) -> tuple[Chunk, ...] | None:
    best = search.best()
    if best is not None:
        return tuple(query.chunks[number] for number in best[0])
    return None if unscored and min(query.candidates.costs) <= budget_tokens else ()
