"""The drivers' replicas: each runs the searches of its requests, and asks the other deployments for what they need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from corag_ray.build import SCORED_FROM_PREPARED, build_reranker, build_tokenizer
from corag_ray.config import Config
from corag_ray.errors import DeadlineError, UnavailableError
from corag_ray.memo import Memo
from corag_ray.models.agent import Configuration
from corag_ray.models.cosines import similarity
from corag_ray.names import reranker_class
from corag_ray.prompts import PROMPTS
from corag_ray.scoring import SCORE_DECIMALS
from corag_ray.selection import Framing
from corag_ray.serving.calls import all_of
from corag_ray.serving.lent_embedder import LentEmbedder
from corag_ray.serving.merged_scorer import MergedScorer
from corag_ray.serving.messages import Asked, Embedded, Ranked, Retrieved, Selected, Stage
from corag_ray.serving.metrics import ANSWER_TOKENS, DEGRADED, STAGE_MS, UnderWay
from corag_ray.serving.pools import DriverPool, Pool, ReplicaPool, bounded_call
from corag_ray.serving.searching import Searcher, Similarity
from corag_ray.serving.select import OnlineSelector
from corag_ray.serving.settings import RerankerScale
from corag_ray.settling import compute

WAIT_S = 30.0
"""For embedder, agent and index; beyond it they count as out of reach."""
PROBE_S = 5.0


@dataclass(frozen=True, slots=True)
class Handles:
    """The deployments that a driver asks; `rerankers` by name."""

    embedder: Any
    index: Any
    agent: Any
    rerankers: Mapping[str, Any]


class DriverReplica:
    """Runs searches; the scores of rerankers that cost little are computed here, in one thread."""

    def __init__(
        self,
        config: Config,
        pools: Mapping[str, RerankerScale],
        standing_in: Sequence[str],
        most_pairs: int,
        dim: int,
        embedder: Any,
        index: Any,
        agent: Any,
        rerankers: Mapping[str, Any],
    ) -> None:
        """`embedder`, `index`, `agent` and, by name, `rerankers` are the deployments; `dim` is the vectors' width."""
        compute(config).apply()
        self._handles = Handles(embedder, index, agent, rerankers)
        self._always_up = [name for name, scale in pools.items() if scale.min_replicas]
        self._under_way = UnderWay("searches")
        thread = ThreadPoolExecutor(1, "scores")
        lent = LentEmbedder(embedder, dim)
        self._selector = OnlineSelector(
            config,
            Framing(build_tokenizer(config), PROMPTS[config.generation.prompt], config.generation.max_new_tokens),
            _Deployments(self._handles),
            Searcher(
                {name: _pool(config, name, scale, rerankers[name], lent, thread) for name, scale in pools.items()},
                standing_in,
            ),
            most_pairs,
        )

    async def select(self, asked: Asked) -> Selected:
        """See `OnlineSelector.select`."""
        with self._under_way:
            return noted(await self._selector.select(asked))

    async def stages(self, asked: Asked) -> AsyncGenerator[Stage | Selected, None]:
        """The stages as they are done, and last of all the selection."""
        done: asyncio.Queue[Stage | None] = asyncio.Queue()
        search = asyncio.create_task(self._selector.select(asked, done.put_nowait))
        search.add_done_callback(lambda _: done.put_nowait(None))
        try:
            with self._under_way:
                while (stage := await done.get()) is not None:
                    yield stage
            yield noted(search.result())
        finally:
            search.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await search

    async def rerank(self, asked: Asked, combine: bool) -> Ranked:
        """See `OnlineSelector.rerank`."""
        with self._under_way:
            ranked = await self._selector.rerank(asked, combine=combine)
        if ranked.selected is not None:
            noted(ranked.selected)
        return ranked

    async def search(self, text: str, num_candidates: int, deadline_s: float) -> Retrieved:
        """See `OnlineSelector.search`."""
        return await self._selector.search(text, num_candidates, deadline_s)

    async def ready(self) -> dict[str, bool]:
        """By deployment that requests need, or that has a replica from the beginning, whether it answers."""
        handles = {"embedder": self._handles.embedder, "index": self._handles.index, "agent": self._handles.agent}
        handles |= {name: self._handles.rerankers[name] for name in self._always_up}
        answers = await all_of(self._answers(name, handle) for name, handle in handles.items())
        return dict(zip(handles, answers, strict=True))

    async def _answers(self, name: str, handle: Any) -> bool:
        try:
            return bool(await bounded_call(lambda: handle.ready.remote(), name, PROBE_S, float("inf")))
        except (UnavailableError, DeadlineError):
            return False


@dataclass(frozen=True, slots=True)
class _Deployments:
    """See `select.Parts`."""

    handles: Handles

    async def embed(self, text: str, deadline_s: float) -> Embedded:
        embedded: list[Embedded] = await bounded_call(
            lambda: self.handles.embedder.embed.remote([text], deadline_s), "embedder", WAIT_S, deadline_s
        )
        return embedded[0]

    async def similarity(self, texts: tuple[str, ...], deadline_s: float) -> Similarity:
        embedded: list[Embedded] = await bounded_call(
            lambda: self.handles.embedder.embed.remote(list(texts), deadline_s), "embedder", WAIT_S, deadline_s
        )
        return similarity(np.stack([one.vector for one in embedded]), SCORE_DECIMALS)

    async def configure(self, text: str, embedded: Embedded, deadline_s: float) -> Configuration:
        chosen: Configuration = await bounded_call(
            lambda: self.handles.agent.configure.remote(text, embedded), "agent", WAIT_S, deadline_s
        )
        return chosen

    async def retrieve(
        self, text: str, embedded: Embedded, num_candidates: int, with_similarity: bool, deadline_s: float
    ) -> Retrieved:
        wanted = text, embedded, num_candidates, with_similarity, deadline_s
        retrieved: Retrieved = await bounded_call(
            lambda: self.handles.index.retrieve.remote(*wanted), "index", WAIT_S, deadline_s
        )
        return retrieved


def noted(selected: Selected) -> Selected:
    """The selection, once the metrics have what it took."""
    for stage, milliseconds in selected.choice.latency_ms.items():
        STAGE_MS.observe(milliseconds, stage=stage)
    if selected.choice.prompt:
        ANSWER_TOKENS.observe(selected.choice.context_tokens, of="context")
    if selected.stopped_by == "deadline":
        DEGRADED.add(because="search_deadline")
    return selected


def _pool(
    config: Config, name: str, scale: RerankerScale, handle: Any, embedder: LentEmbedder, thread: ThreadPoolExecutor
) -> Pool:
    """A reranker's pool, of the kind that its scores' cost asks for."""
    kind = reranker_class(config, name)
    if name not in SCORED_FROM_PREPARED:
        windowed = hasattr(kind, "query_tokens")  # a `WindowedReranker`
        return ReplicaPool(name, handle, order_sensitive=kind.order_sensitive, windowed=windowed, wait_s=scale.wait_s)
    scorer = MergedScorer(
        *(name, build_reranker(config, name, embedder, None), Memo({}, 0), thread),
        batch_pairs=scale.batch_pairs,
        most_waiting_pairs=scale.waiting_pairs,
    )
    return DriverPool(name, handle, scorer, order_sensitive=kind.order_sensitive, wait_s=scale.wait_s)
