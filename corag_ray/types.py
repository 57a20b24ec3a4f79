"""Frozen values that cross the borders between rooms: documents, chunks, questions, scores."""

from __future__ import annotations

from dataclasses import dataclass

Combination = tuple[int, ...]
"""An ordered choice of candidate numbers, 0..k-1 within one query; `()` is the empty context."""


@dataclass(frozen=True, slots=True)
class Document:
    """One text of the corpus, title included."""

    doc_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start:end` (end exclusive) of one document's text."""

    doc_id: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """A span that supports the answer, with its text; `answer` marks the answer string in it, where the set does."""

    span: Span
    answer: Span | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Contiguous tokens of one document.

    `chunk_id` is a stable unsigned 64-bit hash of (document, span, chunking); `position` counts chunks within the
    document; `cost` is in generator tokens, as the prompt renders the chunk (number and separator included).
    """

    chunk_id: int
    doc_id: str
    position: int
    start: int
    end: int
    text: str
    cost: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question with whatever the data set knows of its answer.

    `answerable` is False where the set says that the corpus does not hold the answer, None where it says nothing.
    """

    question_id: str
    text: str
    answers: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    language: str = "en"
    kind: str | None = None
    answerable: bool | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """What a reranker says of one (query, combination) pair: the raw output and a calibrated value in 0..1."""

    raw: float
    calibrated: float


@dataclass(frozen=True, slots=True)
class Generation:
    """One generated answer. `finish_reason` is `stop` (the model ended) or `length` (cut at `max_new_tokens`)."""

    text: str
    prompt_tokens: int
    new_tokens: int
    finish_reason: str
