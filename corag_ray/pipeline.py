"""From questions to answers: retrieve, configure, search, prompt (`Selector`), then generate (`Answerer`)."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from corag_ray.core.drive import drive_lockstep
from corag_ray.core.fill import SinglesFill
from corag_ray.core.orders import Order, in_order
from corag_ray.core.strategy import Candidates, Strategy
from corag_ray.core.trace import Trace, trace
from corag_ray.errors import RowError
from corag_ray.indexing.chunking import COST_NUMBER
from corag_ray.indexing.store import ChunkStore
from corag_ray.memo import Memo, QueryKeys
from corag_ray.models.protocols import FirstStage, FloatArray, Generator, PromptTokenizer, Reranker, WindowedReranker
from corag_ray.prompts import Prompt, numbered_passage
from corag_ray.scoring import SCORE_DECIMALS, Heard, ScoringContext, score_pairs, shared_ms
from corag_ray.types import Chunk, Combination, Generation, Question

SEARCHES_IN_FLIGHT = 64

Source = Literal["retrieval", "gold", "none"]

NewStrategy = Callable[[Candidates, int], Strategy]
"""From candidates and a budget in tokens to a fresh search."""
StoredVectors = Callable[[Sequence[int]], FloatArray]
"""From rows of the chunk store to their unit vectors, [rows, dim]."""


@dataclass(frozen=True, slots=True)
class Method:
    """A candidate source; for retrieved candidates also a strategy, the reranker it asks, and the order of the answer.

    `needs_similarity`: the strategy reads `Candidates.similarity`, which is left out otherwise.
    """

    source: Source
    new_strategy: NewStrategy | None = None
    reranker: str | None = None
    order: Order = "chosen"
    needs_similarity: bool = False


@dataclass(slots=True)
class Choice:
    """What one method chose for one question, and the prompt made of it.

    The selection's costs hold what its numbers can add (`_extra_cost`); those of `Choices.candidates` are the index's.
    `score` is the strategy's; None where the method's `order` is not `chosen` and its reranker sees order: what stands
    in the prompt was then never scored. `effective_budget_tokens` is the budget, or what the model's window leaves for
    context if that is less; `context_tokens` is recounted from the encoded prompt. `latency_ms` is by stage; what
    questions share is divided among them, so that sums over a run are the run's time. `search` holds the cosines that
    the strategy reads, its construction, its pairs' share of its reranker's time and of the rounds', and its answer.
    `pairs_computed` is how many of its `pairs` a reranker was called for; the others' scores were in the memo or came
    with another search's. Like a time, it depends on what else was asked. `pairs_unscored` could not be scored, and so
    not be chosen. Of a reranker with a window: `selection_windows` is in how many the selection was scored (its longest
    chunk, where the strategy has chunks scored alone), None where there is no such thing, and `question_tokens_cut`
    tells how many of the question's tokens were not read.
    """

    source: Source
    selection: list[Chunk] = field(default_factory=list)
    score: float | None = None
    pairs: int = 0
    pairs_computed: int = 0
    pairs_unscored: int = 0
    selection_windows: int | None = None
    question_tokens_cut: int = 0
    reranker: str | None = None
    effective_budget_tokens: int = 0
    prompt: str = ""
    prompt_tokens: int = 0
    context_tokens: int = 0
    latency_ms: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    search: Strategy | None = field(default=None, repr=False)
    trace: Trace | None = field(default=None, repr=False)
    """The finished search and what it went through, where the selector was asked to keep them: for explanations."""


@dataclass(slots=True)
class Choices:
    """A question with its candidates and what every method chose, or the error that stopped it.

    `index_version` is the number and content hash of the index that the choices rest on.
    """

    question: Question
    index_version: str = field(kw_only=True)
    candidates: list[Chunk] = field(default_factory=list)
    methods: dict[str, Choice] = field(default_factory=dict)
    error: RowError | None = None


@dataclass(frozen=True, slots=True)
class _Search:
    """One method's search for one question."""

    choice: Choice
    chunks: Sequence[Chunk]
    candidates: Candidates
    order: Order
    strategy: Strategy
    scored: ScoringContext


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
        self._tokenizer = tokenizer
        self._prompt = prompt
        self._methods = methods
        self._num_candidates = num_candidates
        self._budget_tokens = budget_tokens
        self._max_new_tokens = max_new_tokens
        self._extra_cost = _extra_cost(tokenizer, num_candidates)

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
        question = choices.question
        if not question.text.strip():
            raise RowError("the question is empty: write what you want to know.")
        if not question.text.isascii() and question.text.encode("utf-8", "ignore").decode("utf-8") != question.text:
            raise RowError("the question holds half of a character (a lone surrogate): send valid Unicode.")
        frame = self._prompt(question.text, [], question.language)
        [frame_tokens] = self._tokenizer.count_prompts([frame])
        room = self._tokenizer.context_window - frame_tokens - self._max_new_tokens
        if room < 0:
            raise RowError(
                f"question and template have {frame_tokens} tokens, and with {self._max_new_tokens} for the answer "
                f"that exceeds the generator's {self._tokenizer.context_window}: shorten either."
            )
        effective = min(self._budget_tokens, room)
        for name, method in self._methods.items():
            choices.methods[name] = Choice(method.source, effective_budget_tokens=effective, reranker=method.reranker)
            if effective < self._budget_tokens:
                choices.methods[name].notes.append(
                    f"budget cut from {self._budget_tokens} to {effective} tokens, all that the model's window leaves"
                )

    def _retrieve(self, batch: Sequence[Choices]) -> list[list[tuple[int, float]]]:
        """Candidates of every question: (store row, first-stage score), best first."""
        started = time.perf_counter()
        found = self._first_stage.search([choices.question.text for choices in batch], self._num_candidates)
        for choices, hits in zip(batch, found, strict=True):
            choices.candidates = self._store.take([row for row, _ in hits])
        share = _ms_since(started) / max(1, len(batch))
        for choices in batch:
            for name, method in self._methods.items():
                if method.source == "retrieval":
                    choices.methods[name].latency_ms["retrieve"] = share
        return found

    def _configure(self, choices: Choices, hits: Sequence[tuple[int, float]]) -> list[_Search]:
        """One search a method over retrieved candidates; each reranker prepares the query once, for all its methods."""
        documents: dict[str, int] = {}
        rows = [row for row, _ in hits]
        similarity, similarity_ms = self._similarity(rows)
        candidates = Candidates(
            costs=tuple(chunk.cost + self._extra_cost for chunk in choices.candidates),
            priors=tuple(score for _, score in hits),
            documents=tuple(documents.setdefault(chunk.doc_id, len(documents)) for chunk in choices.candidates),
            positions=tuple(chunk.position for chunk in choices.candidates),
        )
        searches: list[_Search] = []
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
                prepared[method.reranker] = value, keys, _ms_since(started)
            value, keys, milliseconds = prepared[method.reranker]
            choice = choices.methods[name]
            choice.latency_ms["prepare"] = milliseconds
            seen = replace(candidates, order_matters=reranker.order_sensitive)
            if method.needs_similarity:
                seen = replace(seen, similarity=similarity)
            started = time.perf_counter()
            strategy = method.new_strategy(seen, choice.effective_budget_tokens)
            choice.latency_ms["search"] = _ms_since(started) + (similarity_ms if method.needs_similarity else 0.0)
            scored = ScoringContext(method.reranker, value, strategy.reading, keys)
            searches.append(_Search(choice, choices.candidates, seen, method.order, strategy, scored))
        return searches

    def _similarity(self, rows: Sequence[int]) -> tuple[tuple[tuple[float, ...], ...], float]:
        """The candidates' cosines, rounded as scores are, and the milliseconds taken; `()` if no method reads them."""
        if not rows or not any(method.needs_similarity for method in self._methods.values()):
            return (), 0.0
        from corag_ray.models.cosines import similarity  # it imports torch, which nothing else here needs

        started = time.perf_counter()
        return similarity(self._vectors(rows), SCORE_DECIMALS), _ms_since(started)

    def _search(self, searches: Sequence[_Search]) -> None:
        """Run all searches in lockstep and store what they chose and the time it took them."""
        scored = [search.scored for search in searches]
        reranker_ms: defaultdict[str, float] = defaultdict(float)
        computed, unscored = Counter[int](), Counter[int]()
        heard: Heard | None = defaultdict(dict) if self._keep_searches else None
        tallies = (reranker_ms, self._memo, computed, unscored, heard)
        started = time.perf_counter()
        pairs = drive_lockstep(
            [search.strategy for search in searches],
            lambda asked: score_pairs(self._rerankers, scored, asked, *tallies),
            in_flight=SEARCHES_IN_FLIGHT,
        )
        shares = shared_ms(scored, pairs, reranker_ms, _ms_since(started))
        for number, (search, asked, share) in enumerate(zip(searches, pairs, shares, strict=True)):
            choice = search.choice
            choice.pairs, choice.pairs_computed, choice.pairs_unscored = asked, computed[number], unscored[number]
            choice.latency_ms["search"] += share
            self._choose(search)
            if heard is not None:
                choice.search, budget_tokens = search.strategy, choice.effective_budget_tokens
                choice.trace = trace(search.strategy, search.candidates, budget_tokens, heard[number])

    def _choose(self, search: _Search) -> None:
        """Store the finished search's answer, in the method's order, and add the time it took to find."""
        choice = search.choice
        started = time.perf_counter()
        best = search.strategy.best()
        choice.latency_ms["search"] += _ms_since(started)
        if best is not None:
            combination, score = best
            order = in_order(search.order, combination, search.candidates)
            choice.selection = [replace(search.chunks[i], cost=search.candidates.costs[i]) for i in order]
            choice.score = score if search.order == "chosen" or not search.candidates.order_matters else None
        if choice.pairs_unscored:
            told = f"{choice.pairs_unscored} of {choice.pairs}"
            choice.notes.append(f"pairs that could not be scored, and so not be chosen: {told}")
        self._note_window(search, best and best[0])
        if not choice.selection:
            choice.notes.append(_why_nothing(search.candidates.costs, choice.effective_budget_tokens))

    def _note_window(self, search: _Search, combination: Combination | None) -> None:
        """Tell how the reranker's window held what was scored of the chosen combination, and the question."""
        choice, reranker, prepared = search.choice, self._rerankers[search.scored.reranker], search.scored.prepared
        if not isinstance(reranker, WindowedReranker):
            return
        if combination:
            alone = isinstance(search.strategy, SinglesFill)  # then nobody asked for the whole
            scored = [(number,) for number in combination] if alone else [combination]
            windows = choice.selection_windows = max(reranker.windows([(prepared, one) for one in scored]))
            if windows > 1:
                what = "a chosen chunk" if alone else "the chosen combination"
                choice.notes.append(f"{what} exceeds the reranker's window and was scored in {windows} windows")
        tokens, read = reranker.query_tokens(prepared)
        choice.question_tokens_cut = tokens - read
        if tokens > read:
            cut = f"exceeds half of the reranker's window and was cut to {read}"
            choice.notes.append(f"the question of {tokens} tokens {cut}")

    def _render(self, choices: Choices) -> None:
        """Fill in gold passages, make every method's prompt and count its tokens."""
        question = choices.question
        for name, method in self._methods.items():
            if method.source == "gold":
                self._take_gold(question, choices.methods[name])
        frame = self._prompt(question.text, [], question.language)
        for choice in choices.methods.values():
            passages = [chunk.text for chunk in choice.selection] or None
            choice.prompt = self._prompt(question.text, passages, question.language)
        counts = self._tokenizer.count_prompts([frame, *(m.prompt for m in choices.methods.values())])
        for choice, tokens in zip(choices.methods.values(), counts[1:], strict=True):
            choice.prompt_tokens = tokens
            choice.context_tokens = tokens - counts[0] if choice.selection else 0
            if tokens + self._max_new_tokens > self._tokenizer.context_window:  # by a search that ignores the budget
                raise RowError(
                    f"a prompt of {tokens} tokens and {self._max_new_tokens} for the answer exceed the generator's "
                    f"{self._tokenizer.context_window}: enforce the budget or lower it."
                )

    def _take_gold(self, question: Question, choice: Choice) -> None:
        """The evidence texts in their given order, as far as they fit the budget."""
        texts = dict.fromkeys((e.span.doc_id, e.span.start, e.span.end, e.text) for e in question.evidence)
        counts = self._tokenizer.count([numbered_passage(COST_NUMBER, text) for *_, text in texts])
        extra = _extra_cost(self._tokenizer, len(texts))
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
        milliseconds = _ms_since(started)
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


def _extra_cost(tokenizer: PromptTokenizer, num_passages: int) -> int:
    """What a passage's number can add to its cost where so many could be shown: costs are counted under two digits."""
    shown, counted = tokenizer.count(
        [numbered_passage(max(num_passages, COST_NUMBER), ""), numbered_passage(COST_NUMBER, "")]
    )
    return shown - counted


def _why_nothing(costs: Sequence[int], budget_tokens: int) -> str:
    if not costs:
        return "no candidate was found: answered without context"
    cheapest = min(costs)
    if cheapest > budget_tokens:
        return f"no candidate fits {budget_tokens} tokens, the cheapest has {cheapest}: answered without context"
    return "no candidate could be scored: answered without context"


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000.0
