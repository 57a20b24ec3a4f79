"""A request's way to its selection: configure, retrieve, search, prompt, over whatever answers for those parts.

Only the order of the steps is here; the steps are the batch pipeline's (`selection`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from corag_ray import config as schema
from corag_ray.build import build_method, describe
from corag_ray.core.strategy import Candidates
from corag_ray.errors import ConfigError, UnavailableError, unknown_name
from corag_ray.models.agent import Configuration
from corag_ray.selection import Framing, budgeted_choice, candidates_of, ms_since
from corag_ray.serving.messages import Asked, Embedded, Query, Ranked, Retrieved, Selected, Stage
from corag_ray.serving.metrics import DEGRADED
from corag_ray.serving.searching import Ground, Searcher, Similarity
from corag_ray.types import Chunk

Tell = Callable[[Stage], None]


class Parts(Protocol):
    """The deployments that a selection asks, each by one call.

    Raise DeadlineError, UnavailableError and OverloadedError, as `pools.OpenQuery.score` does.
    """

    async def embed(self, text: str, deadline_s: float) -> Embedded:
        """A question's vectors."""
        ...

    async def similarity(self, texts: tuple[str, ...], deadline_s: float) -> Similarity:
        """The rounded cosines of texts that are not in the index, [texts][texts]."""
        ...

    async def configure(self, text: str, embedded: Embedded, deadline_s: float) -> Configuration:
        """What the agent chooses."""
        ...

    async def retrieve(
        self, text: str, embedded: Embedded, num_candidates: int, with_similarity: bool, deadline_s: float
    ) -> Retrieved:
        """The first stage's candidates."""
        ...


@dataclass(frozen=True, slots=True)
class OnlineSelector:
    """Chooses for requests, any number of which may be under way in one event loop.

    `framing` has the prompt and the tokenizer (how many new tokens are kept free a request says for itself);
    `most_pairs` bounds every search, whatever a request asks for.
    """

    config: schema.Config
    framing: Framing
    parts: Parts
    searcher: Searcher
    most_pairs: int

    async def select(self, asked: Asked, tell: Tell = lambda stage: None) -> Selected:
        """The request's selection and prompt; `tell` hears of each stage when it is done.

        Raises:
            RowError: the question cannot be answered.
            ConfigError: a method, reranker or parameter is named that is not there.
            DeadlineError: the deadline came before there were candidates.
            UnavailableError: embedder, agent or index do not answer.
            OverloadedError: too much is waiting.
        """
        question = asked.question
        framing = replace(self.framing, max_new_tokens=asked.max_new_tokens)
        effective = framing.budget(question, asked.budget_tokens)
        started = time.perf_counter()
        embedded = await self.parts.embed(question.text, asked.deadline_s)
        name, wanted = await self._configured(asked, embedded)
        method = build_method(wanted, self.config.seed)
        configure_ms = ms_since(started)
        tell(Stage("configured", configure_ms, {"method": name, "reranker": method.reranker}))
        if method.source == "none":
            choice = budgeted_choice(method, effective, asked.budget_tokens)
            framing.render(question, [choice])
            return Selected(name, choice, (), None, settings=self._settings(asked, name, wanted))
        started = time.perf_counter()
        number = asked.num_candidates or self.config.retrieval.num_candidates
        retrieved = await self.parts.retrieve(
            question.text, embedded, number, method.needs_similarity, asked.deadline_s
        )
        retrieve_ms = ms_since(started)
        tell(Stage("retrieved", retrieve_ms, {"candidates": len(retrieved.rows)}))
        query = Query(question.text, rows=retrieved.rows)
        candidates = candidates_of(retrieved.chunks, retrieved.scores, framing.extra_cost(number))
        ground = self._ground(asked, effective, query, embedded, retrieved.chunks, candidates)
        started = time.perf_counter()
        found = await self.searcher.search(method, replace(ground, similarity=retrieved.similarity))
        choice = found.choice
        choice.latency_ms |= {"configure": configure_ms, "retrieve": retrieve_ms}
        facts = {"pairs": choice.pairs, "chunks": len(choice.selection), "reranker": choice.reranker}
        tell(Stage("searched", ms_since(started), facts | {"stopped_by": found.stopped_by}))
        framing.render(question, [choice])
        chunks, version, settings = retrieved.chunks, retrieved.index_version, self._settings(asked, name, wanted)
        return Selected(name, choice, chunks, version, found.stopped_by, found.degraded, settings)

    async def rerank(self, asked: Asked, *, combine: bool) -> Ranked:
        """The request's documents ranked one by one and, if `combine`, their best combination within the budget.

        Raises: as `select` does; UnavailableError also where no reranker answers, as there is no other order then.
        """
        documents = asked.documents or ()
        framing = replace(self.framing, max_new_tokens=asked.max_new_tokens)
        embedded = await self.parts.embed(asked.question.text, asked.deadline_s)
        name, wanted = await self._configured(asked, embedded)
        method = build_method(wanted, self.config.seed)
        if method.reranker is None:
            raise ConfigError(f"method '{name}' has no reranker: name another, or a `reranker`.")
        costs = await asyncio.to_thread(framing.costs, documents)  # a megabyte takes its time, and others wait
        chunks = tuple(
            Chunk(number, str(number), 0, 0, len(text), text, cost)
            for number, (text, cost) in enumerate(zip(documents, costs, strict=True))
        )
        query = Query(asked.question.text, chunks=chunks)
        reranker, ranking, degraded = await self._ranked(method.reranker, query, embedded, asked.deadline_s)
        selected = None
        if combine:
            effective = framing.budget(asked.question, asked.budget_tokens)
            candidates = candidates_of(chunks, (0.0,) * len(chunks), framing.extra_cost(len(chunks)))
            ground = self._ground(asked, effective, query, embedded, chunks, candidates)
            if method.needs_similarity:
                ground = replace(ground, similarity=await self.parts.similarity(documents, asked.deadline_s))
            found = await self.searcher.search(replace(method, reranker=reranker), ground)
            selected = Selected(name, found.choice, chunks, None, found.stopped_by, found.degraded)
        return Ranked(ranking, reranker, sum(costs), selected, degraded)

    async def search(self, text: str, num_candidates: int, deadline_s: float) -> Retrieved:
        """The first stage alone; raises as `Parts` do."""
        embedded = await self.parts.embed(text, deadline_s)
        return await self.parts.retrieve(text, embedded, num_candidates, False, deadline_s)

    async def _ranked(
        self, reranker: str, query: Query, embedded: Embedded, deadline_s: float
    ) -> tuple[str, tuple[tuple[int, float | None], ...], tuple[str, ...]]:
        """Who ranked, the documents by falling score (first come first on ties), and who did not answer."""
        degraded: list[str] = []
        for name in self.searcher.standing_in(reranker):
            try:
                opened = await self.searcher.pools[name].open(query, embedded, deadline_s)
                singles = [(number,) for number in range(len(query.chunks))]
                scored = await opened.score("calibrated", singles, deadline_s)
            except UnavailableError as error:
                degraded.append(f"reranker {error}")
                continue
            DEGRADED.add(bool(degraded), because="reranker")
            order = sorted(enumerate(scored.values), key=lambda one: (one[1] is None, -(one[1] or 0.0), one[0]))
            return name, tuple(order), tuple(degraded)
        raise UnavailableError(" ".join(degraded))

    async def _configured(self, asked: Asked, embedded: Embedded) -> tuple[str, schema.Method]:
        """The method's name and settings: the agent's, but for what the request itself says.

        Raises:
            ConfigError: a name is unknown, or the method needs what only a data set has.
        """
        chosen = await self.parts.configure(asked.question.text, embedded, asked.deadline_s)
        name = asked.method or chosen.method
        if name not in self.config.methods:
            raise unknown_name("method", name, self.config.methods)
        method = self.config.methods[name]
        if method.source == "gold":
            raise ConfigError(f"method '{name}' takes gold passages, which only a data set's questions have.")
        strategy = asked.strategy or method.strategy
        if strategy is None:
            if asked.documents is None and not asked.reranker:
                return name, method
            raise ConfigError(f"method '{name}' searches nothing: name another, or a `strategy`.")
        if chosen.changes and asked.strategy is None and name == chosen.method:
            values = strategy.model_dump()
            strategy = type(strategy).model_validate(values | {"changes": {**strategy.changes, **chosen.changes}})
        reranker = asked.reranker or (chosen.reranker if name == chosen.method else None) or method.reranker
        if reranker not in self.searcher.pools:
            raise unknown_name("reranker", reranker, self.searcher.pools)
        order = method.order
        return name, schema.Method(strategy=strategy, reranker=reranker, order=order)

    def _ground(
        self,
        asked: Asked,
        effective_tokens: int,
        query: Query,
        embedded: Embedded,
        chunks: tuple[Chunk, ...],
        candidates: Candidates,
    ) -> Ground:
        """What a search over these chunks starts from, but for their similarity."""
        pair_limit = min(asked.pair_limit or self.most_pairs, self.most_pairs)
        budgets = asked.budget_tokens, effective_tokens, asked.deadline_s, pair_limit
        return Ground(query, embedded, chunks, candidates, *budgets, explain=asked.explain)

    def _settings(self, asked: Asked, name: str, method: schema.Method) -> dict[str, str]:
        """The method's settings as this request has them, where they are to be explained."""
        if not asked.explain:
            return {}
        changes = {"methods": {name: method}, "budget_tokens": asked.budget_tokens}
        return describe(self.config.model_copy(update=changes), name)
