"""The steps of a selection that ask no model but the tokenizer, shared by the batch pipeline and by serving.

Who runs them finds the candidates, has a search's combinations scored, and keeps the time: in lockstep over a list of
questions (`pipeline.Selector`), or over calls to other processes (`serving`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from corag_ray.core.fill import SinglesFill
from corag_ray.core.orders import Order, in_order
from corag_ray.core.strategy import Candidates, Strategy
from corag_ray.core.trace import Trace
from corag_ray.errors import RowError
from corag_ray.indexing.chunking import COST_NUMBER
from corag_ray.models.protocols import PromptTokenizer
from corag_ray.prompts import Prompt, numbered_passage
from corag_ray.types import Chunk, Combination, Question

Source = Literal["retrieval", "gold", "none"]

NewStrategy = Callable[[Candidates, int], Strategy]
"""From candidates and a budget in tokens to a fresh search."""


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

    The selection's costs hold what its numbers can add (`extra_cost`); those of `Choices.candidates` are the index's.
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
class Search:
    """One method's search for one question; `candidates` are what its strategy sees of `chunks`."""

    choice: Choice
    chunks: Sequence[Chunk]
    candidates: Candidates
    order: Order
    strategy: Strategy


@dataclass(frozen=True, slots=True)
class Framing:
    """The prompt around a selection: what it leaves for context, and what it becomes with it.

    `max_new_tokens` is kept free in the generator's window for the answer.
    """

    tokenizer: PromptTokenizer
    prompt: Prompt
    max_new_tokens: int

    def budget(self, question: Question, budget_tokens: int) -> int:
        """The tokens that a selection for this question may cost: `budget_tokens`, or what the window leaves.

        Raises:
            RowError: the question is empty, no valid Unicode, or too long for the window.
        """
        if not question.text.strip():
            raise RowError("the question is empty: write what you want to know.")
        if not question.text.isascii() and question.text.encode("utf-8", "ignore").decode("utf-8") != question.text:
            raise RowError("the question holds half of a character (a lone surrogate): send valid Unicode.")
        frame = self.prompt(question.text, [], question.language)
        [frame_tokens] = self.tokenizer.count_prompts([frame])
        room = self.tokenizer.context_window - frame_tokens - self.max_new_tokens
        if room < 0:
            raise RowError(
                f"question and template have {frame_tokens} tokens, and with {self.max_new_tokens} for the answer "
                f"that exceeds the generator's {self.tokenizer.context_window}: shorten either."
            )
        return min(budget_tokens, room)

    def render(self, question: Question, choices: Sequence[Choice]) -> None:
        """Make every choice's prompt and count its tokens.

        Raises:
            RowError: a prompt and its answer exceed the window.
        """
        frame = self.prompt(question.text, [], question.language)
        for choice in choices:
            passages = [chunk.text for chunk in choice.selection] or None
            choice.prompt = self.prompt(question.text, passages, question.language)
        counts = self.tokenizer.count_prompts([frame, *(choice.prompt for choice in choices)])
        for choice, tokens in zip(choices, counts[1:], strict=True):
            choice.prompt_tokens = tokens
            choice.context_tokens = tokens - counts[0] if choice.selection else 0
            if tokens + self.max_new_tokens > self.tokenizer.context_window:  # by a search that ignores the budget
                raise RowError(
                    f"a prompt of {tokens} tokens and {self.max_new_tokens} for the answer exceed the generator's "
                    f"{self.tokenizer.context_window}: enforce the budget or lower it."
                )

    def extra_cost(self, num_passages: int) -> int:
        """What a passage's number can add to its cost where so many could be shown.

        Costs are counted under a number of two digits.
        """
        shown, counted = self.tokenizer.count(
            [numbered_passage(max(num_passages, COST_NUMBER), ""), numbered_passage(COST_NUMBER, "")]
        )
        return shown - counted

    def costs(self, texts: Sequence[str]) -> list[int]:
        """What each text costs as a passage; a number beyond two digits adds `extra_cost`."""
        return self.tokenizer.count([numbered_passage(COST_NUMBER, text) for text in texts])


def budgeted_choice(method: Method, effective_tokens: int, budget_tokens: int) -> Choice:
    """The choice of a method, still to be made, with its budget and, where that was cut, a note."""
    choice = Choice(method.source, effective_budget_tokens=effective_tokens, reranker=method.reranker)
    if effective_tokens < budget_tokens:
        choice.notes.append(
            f"budget cut from {budget_tokens} to {effective_tokens} tokens, all that the model's window leaves"
        )
    return choice


def candidates_of(chunks: Sequence[Chunk], first_scores: Sequence[float], extra_cost: int) -> Candidates:
    """What a strategy sees of retrieved chunks, best first, without their similarity."""
    documents: dict[str, int] = {}
    return Candidates(
        costs=tuple(chunk.cost + extra_cost for chunk in chunks),
        priors=tuple(first_scores),
        documents=tuple(documents.setdefault(chunk.doc_id, len(documents)) for chunk in chunks),
        positions=tuple(chunk.position for chunk in chunks),
    )


def begin_search(
    choice: Choice,
    method: Method,
    chunks: Sequence[Chunk],
    candidates: Candidates,
    *,
    order_matters: bool,
    similarity: tuple[tuple[float, ...], ...] = (),
) -> Search:
    """The method's search, whose construction counts as its time; `order_matters` is what its reranker declares."""
    if method.new_strategy is None:
        raise ValueError("a method without a strategy has nothing to search")
    seen = replace(candidates, order_matters=order_matters)
    if method.needs_similarity:
        seen = replace(seen, similarity=similarity)
    started = time.perf_counter()
    strategy = method.new_strategy(seen, choice.effective_budget_tokens)
    choice.latency_ms["search"] = choice.latency_ms.get("search", 0.0) + ms_since(started)
    return Search(choice, chunks, seen, method.order, strategy)


def end_search(search: Search) -> Combination | None:
    """Store the search's answer, in the method's order, and the time it took to find; returns what was chosen.

    That is the strategy's combination, before it is put in order.
    """
    choice = search.choice
    started = time.perf_counter()
    best = search.strategy.best()
    choice.latency_ms["search"] += ms_since(started)
    if best is not None:
        combination, score = best
        order = in_order(search.order, combination, search.candidates)
        choice.selection = [replace(search.chunks[i], cost=search.candidates.costs[i]) for i in order]
        choice.score = score if search.order == "chosen" or not search.candidates.order_matters else None
    if choice.pairs_unscored:
        told = f"{choice.pairs_unscored} of {choice.pairs}"
        choice.notes.append(f"pairs that could not be scored, and so not be chosen: {told}")
    return best and best[0]


def note_nothing_chosen(search: Search) -> None:
    """Say why the selection is empty, if it is."""
    if not search.choice.selection:
        search.choice.notes.append(_why_nothing(search.candidates.costs, search.choice.effective_budget_tokens))


def scored_as(strategy: Strategy, combination: Combination | None) -> list[Combination]:
    """What the strategy had scored of the combination that it chose: the whole, or each of its chunks alone."""
    if not combination:
        return []
    return [(number,) for number in combination] if isinstance(strategy, SinglesFill) else [combination]


def note_window(search: Search, windows: Sequence[int], query_tokens: tuple[int, int]) -> None:
    """Tell how a reranker's window held the question, and what `scored_as` gives.

    Args:
        search: an ended one.
        windows: in how many windows each of those was read.
        query_tokens: how many tokens the question has, and how many of them are read.
    """
    choice = search.choice
    if windows:
        choice.selection_windows = max(windows)
        if choice.selection_windows > 1:
            what = "a chosen chunk" if isinstance(search.strategy, SinglesFill) else "the chosen combination"
            held = f"exceeds the reranker's window and was scored in {choice.selection_windows} windows"
            choice.notes.append(f"{what} {held}")
    tokens, read = query_tokens
    choice.question_tokens_cut = tokens - read
    if tokens > read:
        cut = f"exceeds half of the reranker's window and was cut to {read}"
        choice.notes.append(f"the question of {tokens} tokens {cut}")


def ms_since(started: float) -> float:
    """Milliseconds since a moment of `time.perf_counter`."""
    return (time.perf_counter() - started) * 1000.0


def _why_nothing(costs: Sequence[int], budget_tokens: int) -> str:
    if not costs:
        return "no candidate was found: answered without context"
    cheapest = min(costs)
    if cheapest > budget_tokens:
        return f"no candidate fits {budget_tokens} tokens, the cheapest has {cheapest}: answered without context"
    return "no candidate could be scored: answered without context"
