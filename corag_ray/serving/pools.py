"""The rerankers as a search sees them: a query is opened in a pool, and what is opened scores its combinations.

There are two kinds. Where a score costs microseconds (late interaction, the combination head), what the replica
prepared of the query comes over in one call, and the search goes on without any. Elsewhere the combinations go to the
replicas, an expansion split over those that are free.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, Protocol

from corag_ray.core.strategy import Reading
from corag_ray.errors import DeadlineError, UnavailableError
from corag_ray.scoring import ScoringContext
from corag_ray.serving.calls import all_of, call
from corag_ray.serving.merged_scorer import MergedScorer, Scored, joined
from corag_ray.serving.messages import Embedded, Query
from corag_ray.types import Combination

LEAST_PAIRS = 8
"""Of an expansion's part: below that, a call costs more than what it spreads."""
REMEMBERED_S = 10.0
"""How long a replica that answered counts as being there."""

Windows = tuple[list[int], tuple[int, int]]
"""In how many windows each combination is read, and of the query's tokens how many there are and how many are read."""


class OpenQuery(Protocol):
    """A query as one reranker scores it."""

    async def score(
        self, reading: Reading, combinations: Sequence[Combination], deadline_s: float, both: bool = False
    ) -> Scored:
        """The combinations' scores, in order; with `both` also the value of each that `reading` is not.

        Raises:
            DeadlineError: the deadline, a moment of `time.time`, came first.
            UnavailableError: no replica answers.
            OverloadedError: too much is waiting.
        """
        ...

    async def windows(self, combinations: Sequence[Combination], deadline_s: float) -> Windows | None:
        """How a window held them, which may be none; None for a reranker without a window."""
        ...


class Pool(Protocol):
    """One reranker's replicas."""

    order_sensitive: bool

    async def open(self, query: Query, embedded: Embedded, deadline_s: float) -> OpenQuery:
        """The query, ready to be scored; raises as `OpenQuery.score` does."""
        ...


class DriverPool:
    """A reranker whose replicas prepare queries and whose scores are computed here."""

    def __init__(self, name: str, handle: Any, scorer: MergedScorer, *, order_sensitive: bool, wait_s: float) -> None:
        """`wait_s` bounds a call; beyond it the pool counts as out of reach."""
        self.order_sensitive = order_sensitive
        self._name = name
        self._handle = handle
        self._scorer = scorer
        self._wait_s = wait_s

    async def open(self, query: Query, embedded: Embedded, deadline_s: float) -> OpenQuery:
        """One call brings what the replica prepared."""
        prepared = await bounded_call(
            lambda: self._handle.prepare.remote(query, embedded, deadline_s), self._name, self._wait_s, deadline_s
        )
        return _OpenHere(self._name, prepared, self._scorer)


class _OpenHere:
    """A query that was prepared elsewhere and is scored here."""

    def __init__(self, name: str, prepared: Any, scorer: MergedScorer) -> None:
        self._name, self._prepared, self._scorer = name, prepared, scorer

    async def score(
        self, reading: Reading, combinations: Sequence[Combination], deadline_s: float, both: bool = False
    ) -> Scored:
        """See `OpenQuery`; what other searches ask for meanwhile is computed in the same call."""
        context = ScoringContext(self._name, self._prepared, reading)
        return await self._scorer.score(lambda: context, combinations, deadline_s, both)

    async def windows(self, combinations: Sequence[Combination], deadline_s: float) -> Windows | None:
        """Rerankers that are scored here read token vectors, and have no window."""
        return None


class ReplicaPool:
    """A reranker whose replicas compute the scores."""

    def __init__(self, name: str, handle: Any, *, order_sensitive: bool, windowed: bool, wait_s: float) -> None:
        """`windowed`: its model reads so many tokens at once; `wait_s` as in `DriverPool`."""
        self.order_sensitive = order_sensitive
        self._name = name
        self._handle = handle
        self._windowed = windowed
        self._wait_s = wait_s
        self._seen_s: dict[str, float] = {}  # replica to when it answered last
        self._under_way = 0

    async def open(self, query: Query, embedded: Embedded, deadline_s: float) -> OpenQuery:
        """Nothing is sent yet: a replica prepares what it has not prepared when it is first asked for scores."""
        return _OpenThere(self, query)

    def parts(self, combinations: Sequence[Combination]) -> list[list[Combination]]:
        """An expansion cut into as many parts as replicas are free, none of them tiny, in order."""
        now_s = time.monotonic()
        self._seen_s = {name: seen for name, seen in self._seen_s.items() if now_s - seen < REMEMBERED_S}
        free = max(1, len(self._seen_s) - self._under_way)
        size = max(LEAST_PAIRS, math.ceil(len(combinations) / free))
        return [list(combinations[start : start + size]) for start in range(0, len(combinations), size)]

    async def score(
        self, query: Query, reading: Reading, combinations: list[Combination], deadline_s: float, both: bool
    ) -> Scored:
        """One part's scores, from whichever replica the router finds."""
        self._under_way += 1
        try:
            scored: Scored = await bounded_call(
                lambda: self._handle.score.remote(query, reading, combinations, deadline_s, both),
                *(self._name, self._wait_s, deadline_s),
            )
        finally:
            self._under_way -= 1
        self._seen_s[scored.by] = time.monotonic()
        return scored

    async def windows(self, query: Query, combinations: Sequence[Combination], deadline_s: float) -> Windows | None:
        """See `OpenQuery`."""
        if not self._windowed:
            return None
        asked = list(combinations)
        held: Windows = await bounded_call(
            lambda: self._handle.windows.remote(query, asked), self._name, self._wait_s, deadline_s
        )
        return held


class _OpenThere:
    """A query that replicas score."""

    def __init__(self, pool: ReplicaPool, query: Query) -> None:
        self._pool, self._query = pool, query

    async def score(
        self, reading: Reading, combinations: Sequence[Combination], deadline_s: float, both: bool = False
    ) -> Scored:
        """See `OpenQuery`."""
        parts = self._pool.parts(combinations)
        return joined(await all_of(self._pool.score(self._query, reading, part, deadline_s, both) for part in parts))

    async def windows(self, combinations: Sequence[Combination], deadline_s: float) -> Windows | None:
        """See `OpenQuery`."""
        return await self._pool.windows(self._query, combinations, deadline_s)


async def bounded_call(ask: Any, what: str, wait_s: float, deadline_s: float) -> Any:
    """`call`, whose time is up after `wait_s` or at the deadline, whichever comes first.

    Raises:
        DeadlineError: that was the deadline.
    """
    try:
        return await call(ask, f"'{what}'", min(deadline_s, time.time() + wait_s))
    except UnavailableError as error:
        if time.time() >= deadline_s:
            raise DeadlineError(f"the request's time was up before '{what}' answered.") from error
        raise
