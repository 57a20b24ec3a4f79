"""One request's search over a pool of replicas: driven to its end, its pair limit or its deadline, whichever is first.

The strategies and the loop are the batch pipeline's. A pool that does not answer is stood in for by the next one that
the service names, and at last by the first stage's own order; the answer says so.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from corag_ray.core.drive import OutOfTime, drive_async, drive_lockstep
from corag_ray.core.fill import SinglesFill
from corag_ray.core.ranked import RankedParams
from corag_ray.core.strategy import Candidates, Reading
from corag_ray.core.trace import trace
from corag_ray.errors import DeadlineError, UnavailableError
from corag_ray.selection import (
    Choice,
    Method,
    begin_search,
    budgeted_choice,
    end_search,
    ms_since,
    note_nothing_chosen,
    note_window,
    scored_as,
)
from corag_ray.serving.messages import Embedded, Query, StoppedBy
from corag_ray.serving.metrics import DEGRADED
from corag_ray.serving.pools import OpenQuery, Pool
from corag_ray.types import Chunk, Combination, Score

BY_RANK = Method("retrieval", functools.partial(SinglesFill, params=RankedParams()))
"""Candidates fill the budget by their first-stage rank: no reranker is asked."""
Similarity = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Ground:
    """What a search starts from: the query, its candidates, and what they may cost in tokens and in time.

    `effective_tokens` is what `budget_tokens` leaves in the prompt; `deadline_s` is a moment of `time.time`; `explain`
    has the choice carry its search's trace.
    """

    query: Query
    embedded: Embedded
    chunks: Sequence[Chunk]
    candidates: Candidates
    budget_tokens: int
    effective_tokens: int
    deadline_s: float
    pair_limit: int
    similarity: Similarity = ()
    explain: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A choice without its prompt, what ended the search, and a sentence on everything done otherwise than asked."""

    choice: Choice
    stopped_by: StoppedBy = "finished"
    degraded: tuple[str, ...] = ()


@dataclass(slots=True)
class _Scorer:
    """Scores a search's asks until the deadline, and keeps what it took and, where there is a `heard`, was told."""

    opened: OpenQuery
    reading: Reading
    deadline_s: float
    heard: dict[Combination, Score | None] | None
    computed: int = 0
    unscored: int = 0
    out_of_time: bool = False

    async def __call__(self, combinations: list[Combination]) -> list[float | None]:
        """See `core.drive.ScoreAsk`."""
        try:
            if time.time() >= self.deadline_s:
                raise DeadlineError("the request's time was up before the search had ended.")
            scored = await self.opened.score(self.reading, combinations, self.deadline_s, self.heard is not None)
        except DeadlineError as error:
            self.out_of_time = True
            raise OutOfTime from error
        self.computed += scored.computed
        self.unscored += scored.values.count(None)
        if self.heard is not None:
            self.heard.update(zip(combinations, scored.both, strict=True))
        return scored.values


@dataclass(frozen=True, slots=True)
class Searcher:
    """Searches with any of some pools; `fallback` are those that stand in for one that does not answer, in order."""

    pools: Mapping[str, Pool]
    fallback: Sequence[str] = field(default=())

    def standing_in(self, reranker: str) -> list[str]:
        """A reranker, and who stands in for it."""
        return list(dict.fromkeys([reranker, *self.fallback]))

    async def search(self, method: Method, ground: Ground) -> Found:
        """What the method chooses.

        Raises:
            OverloadedError: too much is waiting.
        """
        degraded: list[str] = []
        for name in self.standing_in(str(method.reranker)):
            try:
                found = await self._searched(replace(method, reranker=name), ground)
            except UnavailableError as error:
                DEGRADED.add(not degraded, because="reranker")
                degraded.append(f"reranker {error}")
                continue
            except DeadlineError as error:
                degraded.append(str(error))
                break
            if found.choice.selection or found.stopped_by != "deadline":
                return replace(found, degraded=(*degraded, *found.degraded))
            degraded.append("the request's time was up before anything that fits had a score.")
            break
        choice = by_rank(ground)
        late = time.time() >= ground.deadline_s
        return Found(choice, "deadline" if late else "finished", tuple(degraded))

    async def _searched(self, method: Method, ground: Ground) -> Found:
        """What the method chooses, all with its own reranker; raises as `OpenQuery.score` does."""
        pool = self.pools[str(method.reranker)]
        choice = budgeted_choice(method, ground.effective_tokens, ground.budget_tokens)
        started = time.perf_counter()
        opened = await pool.open(ground.query, ground.embedded, ground.deadline_s)
        choice.latency_ms["prepare"] = ms_since(started)
        search = begin_search(
            choice,
            method,
            ground.chunks,
            ground.candidates,
            order_matters=pool.order_sensitive,
            similarity=ground.similarity,
        )
        scorer = _Scorer(opened, search.strategy.reading, ground.deadline_s, {} if ground.explain else None)
        started = time.perf_counter()
        choice.pairs = await drive_async(search.strategy, scorer, pair_limit=ground.pair_limit)
        choice.latency_ms["search"] += ms_since(started)
        choice.pairs_computed, choice.pairs_unscored = scorer.computed, scorer.unscored
        combination = end_search(search)
        held = await opened.windows(scored_as(search.strategy, combination), max(ground.deadline_s, time.time() + 1.0))
        if held is not None:
            note_window(search, *held)
        note_nothing_chosen(search)
        if scorer.heard is not None:
            choice.trace = trace(search.strategy, search.candidates, ground.effective_tokens, scorer.heard)
        if scorer.out_of_time:
            return Found(choice, "deadline", ("the request's time was up: this is the best that was found so far.",))
        return Found(choice, "pair_limit" if choice.pairs >= ground.pair_limit else "finished")


def by_rank(ground: Ground) -> Choice:
    """The candidates that fill the budget in the first stage's order, none of them scored."""
    choice = budgeted_choice(BY_RANK, ground.effective_tokens, ground.budget_tokens)
    search = begin_search(choice, BY_RANK, ground.chunks, ground.candidates, order_matters=False)
    drive_lockstep(
        [search.strategy], lambda asked: [ground.candidates.priors[single[0]] for _, single in asked], in_flight=1
    )
    end_search(search)
    choice.score = None  # a first-stage score is none of a reranker's
    note_nothing_chosen(search)
    return choice
