"""From questions to answers: retrieve, configure, search, prompt (`Selector`), then generate (`Answerer`)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from corag_ray.core.drive import drive_lockstep
from corag_ray.core.strategy import Candidates, Strategy
from corag_ray.errors import RowError
from corag_ray.indexing.chunking import COST_NUMBER
from corag_ray.indexing.store import ChunkStore
from corag_ray.models.protocols import FirstStage, Generator, PromptTokenizer, Reranker
from corag_ray.prompts import Prompt, numbered_passage
from corag_ray.scoring import Scored, score_pairs
from corag_ray.types import Chunk, Generation, Question

SEARCHES_IN_FLIGHT = 64

NewStrategy = Callable[[Candidates, int], Strategy]
"""From candidates and a budget in tokens to a fresh search."""


@dataclass(frozen=True, slots=True)
class Method:
    """A candidate source; for retrieved candidates also a strategy and the reranker it asks."""

    source: Literal["retrieval", "gold", "none"]
    new_strategy: NewStrategy | None = None
    reranker: str | None = None


@dataclass(slots=True)
class MethodPlan:
    """What one method chose for one question, and the prompt made of it.

    `effective_budget_tokens` is the budget, or what the model's window leaves for context if that is less;
    `context_tokens` is recounted from the encoded prompt. `latency_ms` is by stage; what questions share is divided
    among them, so that sums over a run are the run's time.
    """

    selection: list[Chunk] = field(default_factory=list)
    score: float | None = None
    pairs: int = 0
    reranker: str | None = None
    effective_budget_tokens: int = 0
    prompt: str = ""
    prompt_tokens: int = 0
    context_tokens: int = 0
    latency_ms: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class QuestionPlan:
    """A question with its candidates and every method's plan, or the error that stopped it."""

    question: Question
    candidates: list[Chunk] = field(default_factory=list)
    methods: dict[str, MethodPlan] = field(default_factory=dict)
    error: RowError | None = None


@dataclass(frozen=True, slots=True)
class _Search:
    """One method's search for one question."""

    plan: MethodPlan
    chunks: Sequence[Chunk]
    strategy: Strategy
    scored: Scored


class Selector:
    """Chooses contexts: everything before the generator. The same object serves one question or a batch."""

    def __init__(
        self,
        *,
        store: ChunkStore,
        first_stage: FirstStage,
        rerankers: Mapping[str, Reranker[Any]],
        tokenizer: PromptTokenizer,
        prompt: Prompt,
        methods: Mapping[str, Method],
        num_candidates: int,
        budget_tokens: int,
        max_new_tokens: int,
    ) -> None:
        """`max_new_tokens` is kept free in the generator's window for the answer."""
        self._store = store
        self._first_stage = first_stage
        self._rerankers = rerankers
        self._tokenizer = tokenizer
        self._prompt = prompt
        self._methods = methods
        self._num_candidates = num_candidates
        self._budget_tokens = budget_tokens
        self._max_new_tokens = max_new_tokens

    def select(self, questions: Sequence[Question]) -> list[QuestionPlan]:
        """One plan a question, in order; a question that cannot be answered carries its error."""
        plans = [QuestionPlan(question) for question in questions]
        for plan in plans:
            try:
                self._start(plan)
            except RowError as error:
                plan.error = error
        sound = [plan for plan in plans if plan.error is None]
        rows = self._retrieve(sound)
        searches = [search for plan, found in zip(sound, rows, strict=True) for search in self._configure(plan, found)]
        self._search(searches)
        for plan in sound:
            self._render(plan)
        return plans

    def _start(self, plan: QuestionPlan) -> None:
        """Check the question and fix each method's budget."""
        question = plan.question
        if not question.text.strip():
            raise RowError("the question is empty: write what you want to know.")
        frame = self._prompt(question.text, [], question.language)
        [frame_tokens] = self._tokenizer.count_prompts([frame])
        room = self._tokenizer.context_window - frame_tokens - self._max_new_tokens
        if room < 0:
            raise RowError(
                f"question and template have {frame_tokens} tokens, and with {self._max_new_tokens} for the answer "
                f"that exceeds the generator's {self._tokenizer.context_window}: shorten the question."
            )
        effective = min(self._budget_tokens, room)
        for name, method in self._methods.items():
            plan.methods[name] = MethodPlan(effective_budget_tokens=effective, reranker=method.reranker)
            if effective < self._budget_tokens:
                plan.methods[name].notes.append(
                    f"budget cut from {self._budget_tokens} to {effective} tokens, all that the model's window leaves"
                )

    def _retrieve(self, plans: Sequence[QuestionPlan]) -> list[list[tuple[int, float]]]:
        """Candidates of every question: (store row, first-stage score), best first."""
        started = time.perf_counter()
        found = self._first_stage.search([plan.question.text for plan in plans], self._num_candidates)
        for plan, hits in zip(plans, found, strict=True):
            plan.candidates = self._store.take([row for row, _ in hits])
        share = _ms_since(started) / max(1, len(plans))
        for plan in plans:
            for name, method in self._methods.items():
                if method.source == "retrieval":
                    plan.methods[name].latency_ms["retrieve"] = share
        return found

    def _configure(self, plan: QuestionPlan, hits: Sequence[tuple[int, float]]) -> list[_Search]:
        """One search a method over retrieved candidates; each reranker prepares the query once, for all its methods."""
        documents: dict[str, int] = {}
        candidates = Candidates(
            costs=tuple(chunk.cost for chunk in plan.candidates),
            priors=tuple(score for _, score in hits),
            documents=tuple(documents.setdefault(chunk.doc_id, len(documents)) for chunk in plan.candidates),
            positions=tuple(chunk.position for chunk in plan.candidates),
        )
        searches: list[_Search] = []
        prepared: dict[str, tuple[Any, float]] = {}
        for name, method in self._methods.items():
            if method.new_strategy is None or method.reranker is None:
                continue
            if method.reranker not in prepared:
                started = time.perf_counter()
                value = self._rerankers[method.reranker].prepare(
                    plan.question.text, plan.candidates, [row for row, _ in hits]
                )
                prepared[method.reranker] = value, _ms_since(started)
            value, milliseconds = prepared[method.reranker]
            method_plan = plan.methods[name]
            method_plan.latency_ms["prepare"] = milliseconds
            strategy = method.new_strategy(candidates, method_plan.effective_budget_tokens)
            scored = Scored(method.reranker, value, strategy.reading)
            searches.append(_Search(method_plan, plan.candidates, strategy, scored))
        return searches

    def _search(self, searches: Sequence[_Search]) -> None:
        """Run all searches in lockstep and store what they chose; the time is shared out by pairs."""
        scored = [search.scored for search in searches]
        started = time.perf_counter()
        pairs = drive_lockstep(
            [search.strategy for search in searches],
            lambda asked: score_pairs(self._rerankers, scored, asked),
            in_flight=SEARCHES_IN_FLIGHT,
        )
        per_pair = _ms_since(started) / max(1, sum(pairs))
        for search, asked in zip(searches, pairs, strict=True):
            plan = search.plan
            plan.pairs, plan.latency_ms["search"] = asked, asked * per_pair
            if (best := search.strategy.best()) is not None:
                combination, plan.score = best
                plan.selection = [search.chunks[i] for i in combination]
            if not plan.selection:
                plan.notes.append(_why_nothing(search.chunks, plan.effective_budget_tokens))

    def _render(self, plan: QuestionPlan) -> None:
        """Fill in gold passages, make every method's prompt and count its tokens."""
        question = plan.question
        for name, method in self._methods.items():
            if method.source == "gold":
                self._take_gold(question, plan.methods[name])
        frame = self._prompt(question.text, [], question.language)
        for method_plan in plan.methods.values():
            passages = [chunk.text for chunk in method_plan.selection] or None
            method_plan.prompt = self._prompt(question.text, passages, question.language)
        counts = self._tokenizer.count_prompts([frame, *(m.prompt for m in plan.methods.values())])
        for method_plan, tokens in zip(plan.methods.values(), counts[1:], strict=True):
            method_plan.prompt_tokens = tokens
            method_plan.context_tokens = tokens - counts[0] if method_plan.selection else 0

    def _take_gold(self, question: Question, plan: MethodPlan) -> None:
        """The evidence texts in their given order, as far as they fit the budget."""
        texts = dict.fromkeys((e.span.doc_id, e.span.start, e.span.end, e.text) for e in question.evidence)
        costs = self._tokenizer.count([numbered_passage(COST_NUMBER, text) for *_, text in texts])
        left = plan.effective_budget_tokens
        for (doc_id, start, end, text), cost in zip(texts, costs, strict=True):
            if cost <= left:
                plan.selection.append(Chunk(0, doc_id, 0, start, end, text, cost))
                left -= cost
        if len(plan.selection) < len(texts):
            plan.notes.append(f"{len(texts) - len(plan.selection)} of {len(texts)} gold passages do not fit the budget")
        if not texts:
            plan.notes.append("the data set gives no evidence for this question")


class Answerer:
    """Writes the answers: one generation for each distinct prompt of a call."""

    def __init__(self, generator: Generator, max_new_tokens: int) -> None:
        """`max_new_tokens` cuts an answer that does not end before."""
        self._generator = generator
        self._max_new_tokens = max_new_tokens

    def answer(self, plans: Sequence[QuestionPlan]) -> list[dict[str, Generation]]:
        """For each plan the answers by method; `{}` where the plan carries an error. Adds the `generate` latency."""
        wanted: dict[str, list[MethodPlan]] = defaultdict(list)
        for plan in plans:
            if plan.error is None:
                for method_plan in plan.methods.values():
                    wanted[method_plan.prompt].append(method_plan)
        started = time.perf_counter()
        answers = dict(zip(wanted, self._generator.generate(list(wanted), self._max_new_tokens), strict=True))
        # By tokens read and written: a batch's time goes to those that made it long.
        per_token = _ms_since(started) / max(1, sum(a.prompt_tokens + a.new_tokens for a in answers.values()))
        for prompt, method_plans in wanted.items():
            tokens = answers[prompt].prompt_tokens + answers[prompt].new_tokens
            for method_plan in method_plans:
                method_plan.latency_ms["generate"] = per_token * tokens
        return [
            {name: answers[m.prompt] for name, m in plan.methods.items()} if plan.error is None else {}
            for plan in plans
        ]


def _why_nothing(chunks: Sequence[Chunk], budget_tokens: int) -> str:
    if not chunks:
        return "no candidate was found: answered without context"
    cheapest = min(chunk.cost for chunk in chunks)
    if cheapest > budget_tokens:
        return f"no candidate fits {budget_tokens} tokens, the cheapest has {cheapest}: answered without context"
    return "no candidate could be scored: answered without context"


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000.0
