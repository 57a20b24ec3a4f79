"""What deployments send each other: frozen, small, picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from corag_ray.config import Strategy
from corag_ray.models.protocols import FloatArray
from corag_ray.selection import Choice
from corag_ray.types import Chunk, Question

StoppedBy = Literal["finished", "pair_limit", "deadline"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, checked; what is None the configuration or the agent says.

    `deadline_s` is a moment of `time.time`. `documents` are texts of the request's own, chosen from instead of the
    index's chunks; `question.question_id` is the id of the request; `explain` wants the search's trace.
    """

    question: Question
    budget_tokens: int
    max_new_tokens: int
    deadline_s: float
    method: str | None = None
    strategy: Strategy | None = None
    reranker: str | None = None
    num_candidates: int | None = None
    pair_limit: int | None = None
    documents: tuple[str, ...] | None = None
    explain: bool = False


@dataclass(frozen=True, slots=True)
class Embedded:
    """A text's unit vector, [dim], and those of its word pieces, [pieces, dim]."""

    vector: FloatArray
    tokens: FloatArray


@dataclass(frozen=True, slots=True)
class Query:
    """A question and its candidates, from which any replica can prepare what it needs.

    They are either `rows` of the chunk store, or `chunks` that are not of it.
    """

    text: str
    rows: tuple[int, ...] | None = None
    chunks: tuple[Chunk, ...] = ()


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Candidates, best first: rows of the chunk store, first-stage scores, chunks, and their similarity if asked for.

    `index_version` is the number and content hash of the index.
    """

    rows: tuple[int, ...]
    scores: tuple[float, ...]
    chunks: tuple[Chunk, ...]
    index_version: str
    similarity: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage that a request has gone through: `facts` are plain values about it."""

    name: Literal["configured", "retrieved", "searched"]
    milliseconds: float
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Selected:
    """A request's selection, with the prompt made of it.

    `degraded` says, a sentence each, what was done otherwise than asked; `stopped_by` what ended the search. Where an
    explanation was asked for, `settings` are the method's, as text by name, and the choice has the trace of its search
    if that asked a reranker to the end.
    """

    method: str
    choice: Choice
    candidates: tuple[Chunk, ...]
    index_version: str | None
    stopped_by: StoppedBy = "finished"
    degraded: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ranked:
    """The documents of a request: (number, calibrated score) by falling score, and what a search chose of them.

    A document that could not be scored stands last, with None.
    """

    ranking: tuple[tuple[int, float | None], ...]
    reranker: str
    tokens: int
    selected: Selected | None
    degraded: tuple[str, ...] = ()
