"""From questions to answers: retrieve, configure, search, prompt (`Selector`), then generate (`Answerer`)."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from corag_ray.core.drive import drive_lockstep
from corag_ray.core.trace import trace
from corag_ray.errors import RowError
from corag_ray.indexing.store import ChunkStore
from corag_ray.memo import Memo, QueryKeys
from corag_ray.models.protocols import FirstStage, FloatArray, Generator, PromptTokenizer, Reranker, WindowedReranker
from corag_ray.prompts import Prompt
from corag_ray.scoring import SCORE_DECIMALS, Heard, ScoringContext, score_pairs, shared_ms
from corag_ray.selection import (
    Choice,
    Choices,
    Framing,
    Method,
    NewStrategy,
    Search,
    Source,
    begin_search,
    budgeted_choice,
    candidates_of,
    end_search,
    ms_since,
    note_nothing_chosen,
    note_window,
    scored_as,
)
from corag_ray.types import Chunk, Generation, Question

__all__ = ["SEARCHES_IN_FLIGHT", "Answerer", "Choice", "Choices", "Method", "NewStrategy", "Selector", "Source"]

SEARCHES_IN_FLIGHT = 64

StoredVectors = Callable[[Sequence[int]], FloatArray]
"""From rows of the chunk store to their unit vectors, [rows, dim]."""
_Scored = tuple[Search, ScoringContext]


class Selector:
    """Chooses contexts: everything before the generator. The same object serves one question or a batch."""

    def __init__(
        self,
        *,
        store: ChunkStore,
        index_version: str,
        first_stage: FirstStage,
        vectors: StoredVectors,
        rerankers: Mapping[str, Reranker[Any]],
        tokenizer: PromptTokenizer,
        prompt: Prompt,
        methods: Mapping[str, Method],
        num_candidates: int,
        budget_tokens: int,
        max_new_tokens: int,
        keep_searches: bool = False,
        memo: Memo | None = None,
    ) -> None:
        """`max_new_tokens` is kept free in the generator's window for the answer. `memo` knows who is memoised."""
        self._memo = Memo({}, 0) if memo is None else memo
        self._keep_searches = keep_searches
        self._store = store
        self.index_version = index_version
        """Number and content hash of the index that every choice rests on."""
        self._first_stage = first_stage
        self._vectors = vectors
        self._rerankers = rerankers
        self._framing = Framing(tokenizer, prompt, max_new_tokens)
        self._methods = methods
        self._num_candidates = num_candidates
        self._budget_tokens = budget_tokens
        self._extra_cost = self._framing.extra_cost(num_candidates)

    def select(self, questions: Sequence[Question]) -> list[Choices]:
        """The choices for each question, in order; a question that cannot be answered carries its error."""
        batch = [Choices(question, index_version=self.index_version) for question in questions]
        for choices in batch:
            try:
                self._start(choices)
            except RowError as error:
                choices.error = error
        sound = [choices for choices in batch if choices.error is None]
        rows = self._retrieve(sound)
        searches = [
            search for choices, found in zip(sound, rows, strict=True) for search in self._configure(choices, found)
        ]
        self._search(searches)
        for choices in sound:
            try:
                self._render(choices)
            except RowError as error:
                choices.error = error
        return batch

    def _start(self, choices: Choices) -> None:
        """Check the question and fix each method's budget."""
        effective = self._framing.budget(choices.question, self._budget_tokens)
        for name, method in self._methods.items():
            choices.methods[name] = budgeted_choice(method, effective, self._budget_tokens)

    def _retrieve(self, batch: Sequence[Choices]) -> list[list[tuple[int, float]]]:
        """Candidates of every question: (store row, first-stage score), best first."""
        started = time.perf_counter()
        found = self._first_stage.search([choices.question.text for choices in batch], self._num_candidates)
        for choices, hits in zip(batch, found, strict=True):
            choices.candidates = self._store.take([row for row, _ in hits])
        share = ms_since(started) / max(1, len(batch))
        for choices in batch:
            for name, method in self._methods.items():
                if method.source == "retrieval":
                    choices.methods[name].latency_ms["retrieve"] = share
        return found

    def _configure(self, choices: Choices, hits: Sequence[tuple[int, float]]) -> list[_Scored]:
        """One search a method over retrieved candidates; each reranker prepares the query once, for all its methods."""
        rows = [row for row, _ in hits]
        similarity, similarity_ms = self._similarity(rows)
        candidates = candidates_of(choices.candidates, [score for _, score in hits], self._extra_cost)
        searches: list[_Scored] = []
        prepared: dict[str, tuple[Any, QueryKeys | None, float]] = {}
        texts = [chunk.text for chunk in choices.candidates]
        for name, method in self._methods.items():
            if method.new_strategy is None or method.reranker is None:
                continue
            reranker = self._rerankers[method.reranker]
            if method.reranker not in prepared:
                started = time.perf_counter()
                value = reranker.prepare(choices.question.text, choices.candidates, rows)
                keys = self._memo.keys(method.reranker, choices.question.text, texts, reranker.order_sensitive)
                prepared[method.reranker] = value, keys, ms_since(started)
            value, keys, milliseconds = prepared[method.reranker]
            choice = choices.methods[name]
            choice.latency_ms["prepare"] = milliseconds
            choice.latency_ms["search"] = similarity_ms if method.needs_similarity else 0.0
            search = begin_search(
                choice,
                method,
                choices.candidates,
                candidates,
                order_matters=reranker.order_sensitive,
                similarity=similarity,
            )
            searches.append((search, ScoringContext(method.reranker, value, search.strategy.reading, keys)))
        return searches

    def _similarity(self, rows: Sequence[int]) -> tuple[tuple[tuple[float, ...], ...], float]:
        """The candidates' cosines, rounded as scores are, and the milliseconds taken; `()` if no method reads them."""
        if not rows or not any(method.needs_similarity for method in self._methods.values()):
            return (), 0.0
        from corag_ray.models.cosines import similarity  # it imports torch, which nothing else here needs

        started = time.perf_counter()
        return similarity(self._vectors(rows), SCORE_DECIMALS), ms_since(started)

    def _search(self, searches: Sequence[_Scored]) -> None:
        """Run all searches in lockstep and store what they chose and the time it took them."""
        scored = [context for _, context in searches]
        reranker_ms: defaultdict[str, float] = defaultdict(float)
        computed, unscored = Counter[int](), Counter[int]()
        heard: Heard | None = defaultdict(dict) if self._keep_searches else None
        tallies = (reranker_ms, self._memo, computed, unscored, heard)
        started = time.perf_counter()
        pairs = drive_lockstep(
            [search.strategy for search, _ in searches],
            lambda asked: score_pairs(self._rerankers, scored, asked, *tallies),
            in_flight=SEARCHES_IN_FLIGHT,
        )
        shares = shared_ms(scored, pairs, reranker_ms, ms_since(started))
        for number, ((search, context), asked, share) in enumerate(zip(searches, pairs, shares, strict=True)):
            choice = search.choice
            choice.pairs, choice.pairs_computed, choice.pairs_unscored = asked, computed[number], unscored[number]
            choice.latency_ms["search"] += share
            self._choose(search, context)
            if heard is not None:
                choice.search, budget_tokens = search.strategy, choice.effective_budget_tokens
                choice.trace = trace(search.strategy, search.candidates, budget_tokens, heard[number])

    def _choose(self, search: Search, scored: ScoringContext) -> None:
        """Store the finished search's answer, and how its reranker's window held it."""
        combination = end_search(search)
        reranker = self._rerankers[scored.reranker]
        if isinstance(reranker, WindowedReranker):
            pairs = [(scored.prepared, one) for one in scored_as(search.strategy, combination)]
            note_window(search, reranker.windows(pairs) if pairs else [], reranker.query_tokens(scored.prepared))
        note_nothing_chosen(search)

    def _render(self, choices: Choices) -> None:
        """Fill in gold passages, make every method's prompt and count its tokens."""
        for name, method in self._methods.items():
            if method.source == "gold":
                self._take_gold(choices.question, choices.methods[name])
        self._framing.render(choices.question, list(choices.methods.values()))

    def _take_gold(self, question: Question, choice: Choice) -> None:
        """The evidence texts in their given order, as far as they fit the budget."""
        texts = dict.fromkeys((e.span.doc_id, e.span.start, e.span.end, e.text) for e in question.evidence)
        counts = self._framing.costs([text for *_, text in texts])
        extra = self._framing.extra_cost(len(texts))
        left = choice.effective_budget_tokens
        for (doc_id, start, end, text), cost in zip(texts, (count + extra for count in counts), strict=True):
            if cost <= left:
                choice.selection.append(Chunk(0, doc_id, 0, start, end, text, cost))
                left -= cost
        if len(choice.selection) < len(texts):
            choice.notes.append(
                f"{len(texts) - len(choice.selection)} of {len(texts)} gold passages do not fit the budget"
            )
        if not texts:
            choice.notes.append("the data set gives no evidence for this question")


class Answerer:
    """Writes the answers: one generation for each distinct prompt of a call."""

    def __init__(self, generator: Generator, max_new_tokens: int) -> None:
        """`max_new_tokens` cuts an answer that does not end before."""
        self._generator = generator
        self._max_new_tokens = max_new_tokens

    def answer(self, batch: Sequence[Choices]) -> list[dict[str, Generation]]:
        """For each question the answers by method, `{}` where it carries an error; adds the `generate` latency.

        A prompt that the generator cannot answer is an error of its question.
        """
        sound = [choices for choices in batch if choices.error is None]
        wanted = dict.fromkeys(choice.prompt for choices in sound for choice in choices.methods.values())
        started = time.perf_counter()
        answers = dict(zip(wanted, self._generator.generate(list(wanted), self._max_new_tokens), strict=True))
        milliseconds = ms_since(started)
        written = {prompt: answer for prompt, answer in answers.items() if isinstance(answer, Generation)}
        # By tokens read and written: a batch's time goes to those that made it long.
        per_token = milliseconds / max(1, sum(a.prompt_tokens + a.new_tokens for a in written.values()))
        for choices in batch:
            for choice in choices.methods.values():
                answer = answers.get(choice.prompt)
                if isinstance(answer, RowError):
                    choices.error = choices.error or answer
                elif choices.error is None and answer is not None:
                    choice.latency_ms["generate"] = per_token * (answer.prompt_tokens + answer.new_tokens)
        return [
            {name: written[m.prompt] for name, m in choices.methods.items()} if choices.error is None else {}
            for choices in batch
        ]
