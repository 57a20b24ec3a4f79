"""One reranker's replicas: they prepare queries and score combinations, for whichever request comes to them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ray import serve
from ray.serve.exceptions import RayServeException

from corag_ray.build import build_memo, build_reranker
from corag_ray.config import Config
from corag_ray.core.strategy import Reading
from corag_ray.errors import ProtocolError
from corag_ray.indexing.open_index import open_index
from corag_ray.indexing.versions import IndexSpec
from corag_ray.memo import QueryKeys
from corag_ray.models.protocols import WindowedReranker
from corag_ray.scoring import ScoringContext
from corag_ray.serving.batcher import Batcher
from corag_ray.serving.lent_embedder import LentEmbedder
from corag_ray.serving.merged_scorer import MergedScorer, Scored
from corag_ray.serving.messages import Embedded, Query
from corag_ray.serving.pools import Windows
from corag_ray.settling import compute
from corag_ray.types import Combination

PREPARED_QUERIES = 256
"""Kept in a replica, those used last: every request that it takes part in, many times over."""
BATCH_QUERIES = 32
"""Prepared in a row at most, before scores have their turn in the one thread again."""
MOST_WAITING_QUERIES = 2_000


@dataclass(frozen=True, slots=True)
class _Prepared:
    value: Any
    keys: QueryKeys | None


class RerankerReplica:
    """Holds a reranker with the chunk store beside it; one thread computes.

    A replica keeps what it has prepared, and needs nothing that another one has: a query with its candidates is all
    that comes with a call.
    """

    def __init__(
        self,
        config: Config,
        name: str,
        folder: Path,
        spec: IndexSpec,
        dim: int,
        embedder: Any,
        *,
        batch_pairs: int,
        most_waiting_pairs: int,
    ) -> None:
        """Load the reranker `name`; `batch_pairs` bounds a merged call."""
        compute(config).apply()
        self._name = name
        self._replica = replica_tag()
        self._embedder = LentEmbedder(embedder, dim)
        index = open_index(folder, spec, self._embedder, config.retrieval.kind)
        self._store = index.store
        self._reranker = build_reranker(config, name, self._embedder, index)
        self._memo = build_memo(config)
        self._prepared: OrderedDict[Query, _Prepared] = OrderedDict()  # touched by the one thread alone
        thread = ThreadPoolExecutor(1, name)
        self._scorer = MergedScorer(
            *(name, self._reranker, self._memo, thread),
            batch_pairs=batch_pairs,
            most_waiting_pairs=most_waiting_pairs,
        )
        self._queries: Batcher[Query, Any] = Batcher(
            *(self._prepare_all, thread),
            most=BATCH_QUERIES,
            most_waiting=MOST_WAITING_QUERIES,
            name=f"{name}_queries",
        )

    async def prepare(self, query: Query, embedded: Embedded, deadline_s: float) -> Any:
        """What the reranker makes of a query: enough to score its combinations elsewhere."""
        self._embedder.lend(query.text, embedded)
        return await self._queries.submit(query, deadline_s=deadline_s)

    async def score(
        self, query: Query, reading: Reading, combinations: Sequence[Combination], deadline_s: float, both: bool
    ) -> Scored:
        """Scores of a query's combinations, in order, as `OpenQuery.score` has them."""
        scored = await self._scorer.score(lambda: self._context(query, reading), combinations, deadline_s, both)
        return replace(scored, by=self._replica)

    async def windows(self, query: Query, combinations: Sequence[Combination]) -> Windows:
        """In how many windows the combinations are read, and how many of the query's tokens there are and are read."""
        reranker = self._reranker
        if not isinstance(reranker, WindowedReranker):
            raise ProtocolError(f"reranker '{self._name}' has no window.")
        prepared = await self._queries.submit(query)
        pairs = [(prepared, combination) for combination in combinations]
        return (reranker.windows(pairs) if pairs else []), reranker.query_tokens(prepared)

    def ready(self) -> bool:
        """That it answers is the answer."""
        return True

    def load(self) -> dict[str, int]:
        """Batches and pairs computed so far."""
        return {"batches": self._scorer.done.batches, "pairs": self._scorer.done.weight}

    def check_health(self) -> None:
        """Called by Ray Serve; raises where a batch hangs."""
        self._scorer.check()
        self._queries.check()

    def _prepare_all(self, queries: list[Query]) -> list[Any]:
        return [self._kept(query).value for query in queries]

    def _context(self, query: Query, reading: Reading) -> ScoringContext:
        prepared = self._kept(query)
        return ScoringContext(self._name, prepared.value, reading, prepared.keys)

    def _kept(self, query: Query) -> _Prepared:
        """What was prepared of the query, now or before; for the computing thread."""
        if query not in self._prepared:
            chunks = query.chunks if query.rows is None else self._store.take(query.rows)
            value = self._reranker.prepare(query.text, chunks, query.rows)
            texts = [chunk.text for chunk in chunks]
            keys = self._memo.keys(self._name, query.text, texts, self._reranker.order_sensitive)
            self._prepared[query] = _Prepared(value, keys)
        self._prepared.move_to_end(query)
        while len(self._prepared) > PREPARED_QUERIES:
            self._prepared.popitem(last=False)
        return self._prepared[query]


def replica_tag() -> str:
    """Which replica this process is; a name of its own where it is none, as in Serve's local testing mode."""
    try:
        return str(serve.get_replica_context().replica_tag)
    except RayServeException:
        return "local"
