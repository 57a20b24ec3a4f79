"""The embedder's replicas: texts of many requests in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from corag_ray.build import build_embedder
from corag_ray.config import Config
from corag_ray.serving.batcher import Batcher
from corag_ray.serving.messages import Embedded

BATCH_TEXTS = 64
MOST_WAITING_TEXTS = 20_000


class EmbedderReplica:
    """Holds the embedder; one thread computes."""

    def __init__(self, config: Config) -> None:
        """Load the embedder."""
        self._embedder = build_embedder(config)
        self._batcher: Batcher[list[str], list[Embedded]] = Batcher(
            *(self._compute, ThreadPoolExecutor(1, "embedder")),
            most=BATCH_TEXTS,
            most_waiting=MOST_WAITING_TEXTS,
            name="embedder_texts",
        )

    async def embed(self, texts: Sequence[str], deadline_s: float = float("inf")) -> list[Embedded]:
        """The texts' vectors, in order."""
        return await self._batcher.submit(list(texts), weight=len(texts), deadline_s=deadline_s)

    def ready(self) -> bool:
        """That it answers is the answer."""
        return True

    def check_health(self) -> None:
        """Called by Ray Serve; raises where a batch hangs."""
        self._batcher.check()

    def _compute(self, items: list[list[str]]) -> list[list[Embedded]]:
        vectors, tokens = self._embedder.embed_with_tokens([text for texts in items for text in texts])
        embedded = iter([Embedded(vector, own) for vector, own in zip(vectors, tokens, strict=True)])
        return [[next(embedded) for _ in texts] for texts in items]
