"""The index's replicas: the first stage and the chunk store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corag_ray.config import Config
from corag_ray.indexing.open_index import open_index
from corag_ray.indexing.versions import IndexSpec
from corag_ray.models.cosines import similarity
from corag_ray.scoring import SCORE_DECIMALS
from corag_ray.serving.batcher import Batcher
from corag_ray.serving.lent_embedder import LentEmbedder
from corag_ray.serving.messages import Embedded, Retrieved
from corag_ray.settling import compute

BATCH_QUERIES = 32
MOST_WAITING_QUERIES = 2_000


@dataclass(frozen=True, slots=True)
class _Wanted:
    text: str
    num_candidates: int
    with_similarity: bool


class IndexReplica:
    """Holds one version of an index, open; one thread searches."""

    def __init__(self, config: Config, folder: Path, spec: IndexSpec, dim: int, embedder: Any) -> None:
        """Open the version of the index in `folder` that was made as `spec` says."""
        compute(config).apply()
        self._embedder = LentEmbedder(embedder, dim)
        self._index = open_index(folder, spec, self._embedder, config.retrieval.kind)
        self._batcher: Batcher[_Wanted, Retrieved] = Batcher(
            *(self._compute, ThreadPoolExecutor(1, "index")),
            most=BATCH_QUERIES,
            most_waiting=MOST_WAITING_QUERIES,
            name="index_queries",
        )

    async def retrieve(
        self, text: str, embedded: Embedded, num_candidates: int, with_similarity: bool, deadline_s: float
    ) -> Retrieved:
        """The query's candidates, best first."""
        self._embedder.lend(text, embedded)
        return await self._batcher.submit(_Wanted(text, num_candidates, with_similarity), deadline_s=deadline_s)

    def ready(self) -> bool:
        """That it answers is the answer."""
        return True

    def check_health(self) -> None:
        """Called by Ray Serve; raises where a search hangs."""
        self._batcher.check()

    def _compute(self, wanted: list[_Wanted]) -> list[Retrieved]:
        most = max(one.num_candidates for one in wanted)
        found = self._index.first_stage.search([one.text for one in wanted], most)  # the same prefix whatever k
        return [
            self._retrieved(hits[: one.num_candidates], one.with_similarity)
            for one, hits in zip(wanted, found, strict=True)
        ]

    def _retrieved(self, hits: list[tuple[int, float]], with_similarity: bool) -> Retrieved:
        rows = tuple(row for row, _ in hits)
        cosines = similarity(self._index.dense.vectors(rows), SCORE_DECIMALS) if rows and with_similarity else ()
        scores = tuple(score for _, score in hits)
        return Retrieved(rows, scores, tuple(self._index.store.take(rows)), self._index.version, cosines)
