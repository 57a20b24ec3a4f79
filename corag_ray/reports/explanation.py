"""What one question's search went through, as JSON of a stated schema (`docs/explain.md`)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal

from corag_ray.core.strategy import Reading, Stopped
from corag_ray.core.trace import Trace, TracedNode
from corag_ray.errors import ConfigError
from corag_ray.pipeline import Choice, Choices, Source
from corag_ray.types import Chunk, Combination, Document

SCHEMA_VERSION: Final = 1
"""Raised when a key goes, is renamed or changes its meaning; new keys do not raise it."""
FORMATS = (".html", ".json")
TITLE_CHARACTERS = 120
MEAN_DECIMALS = 6

Searched = Literal["tree", "list", "none"]
"""A tree of nodes; a list of what was asked, in its order; no search at all (gold passages, no context)."""


@dataclass(frozen=True, slots=True)
class ExplainedCandidate:
    """A chunk that the search could choose; `number` names it in combinations, `rank` counts from 1."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    number: int
    rank: int
    doc_id: str
    title: str
    position: int
    start: int
    end: int
    cost: int
    prior: float | None
    fits: bool
    text: str


@dataclass(frozen=True, slots=True)
class ExplainedNode:
    """A combination that the search looked at, as `core.trace.TracedNode` describes it."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    combination: Combination
    parent: int | None
    asked: int | None
    cost: int
    raw: float | None
    calibrated: float | None
    visits: int | None
    mean_reward: float | None
    forbidden: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class ExplainedChunk:
    """A chunk of the selection; `candidate` and `rank` are None where it is no candidate, as a gold passage."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    place: int
    candidate: int | None
    rank: int | None
    doc_id: str
    title: str
    cost: int
    text: str


@dataclass(frozen=True, slots=True)
class ExplainedChoice:
    """What was chosen: the combination as the search left it, its node if it was scored, the chunks as in the prompt.

    `score` is the search's (of `SinglesFill` that of its first chunk). `no_longer_fits` are the candidates outside it
    that the room left is too small for.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    combination: Combination | None
    node: int | None
    score: float | None
    cost: int
    room_tokens: int
    no_longer_fits: tuple[int, ...]
    chunks: tuple[ExplainedChunk, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """How one method chose the context of one question.

    `stopped` and `reading` are None where nothing was searched; `milliseconds` are those of `Choice.latency_ms`.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    schema_version: Literal[1]
    question: str
    method: str
    settings: dict[str, str]
    source: Source
    reranker: str | None
    reading: Reading | None
    index_version: str
    effective_budget_tokens: int
    searched: Searched
    stopped: Stopped | None
    pairs: int
    pairs_computed: int
    pairs_unscored: int
    milliseconds: dict[str, float]
    candidates: tuple[ExplainedCandidate, ...]
    nodes: tuple[ExplainedNode, ...]
    choice: ExplainedChoice
    notes: tuple[str, ...]


def explained(
    choices: Choices, method: str, settings: Mapping[str, str], documents: Iterable[Document] = ()
) -> Explanation:
    """How `method` chose for a question without error.

    Args:
        choices: of a selector that keeps its searches; otherwise the explanation has no nodes.
        method: one of the choices'.
        settings: the method's, as text by name.
        documents: of the corpus: a title is a document's first line, and without the document there is none.
    """
    choice = choices.methods[method]
    trace = choice.trace
    wanted = {chunk.doc_id for chunk in (*choices.candidates, *choice.selection)}
    titles = {document.doc_id: title_of(document.text) for document in documents if document.doc_id in wanted}
    return Explanation(
        schema_version=SCHEMA_VERSION,
        question=choices.question.text,
        method=method,
        settings=dict(settings),
        source=choice.source,
        reranker=choice.reranker,
        reading=trace.reading if trace else None,
        index_version=choices.index_version,
        effective_budget_tokens=choice.effective_budget_tokens,
        searched="none" if trace is None else "tree" if trace.is_tree else "list",
        stopped=trace.stopped if trace else None,
        pairs=choice.pairs,
        pairs_computed=choice.pairs_computed,
        pairs_unscored=choice.pairs_unscored,
        milliseconds={stage: round(ms, 3) for stage, ms in choice.latency_ms.items()},
        candidates=_candidates(choices.candidates, trace, titles) if trace else (),
        nodes=tuple(_node(node) for node in trace.nodes) if trace else (),
        choice=_choice(choice, trace, choices.candidates, titles),
        notes=tuple(choice.notes),
    )


def to_json(explanation: Explanation) -> str:
    """One JSON object on one line; the keys stand in the schema's order."""
    return json.dumps(asdict(explanation), ensure_ascii=False, allow_nan=False)


def check_format(path: Path) -> None:
    """Pass when an explanation can be written to a file of this name.

    Raises:
        ConfigError: it ends neither in .html nor in .json.
    """
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"an explanation is written as {' or '.join(FORMATS)}, and '{path.name}' ends in neither.")


def title_of(text: str) -> str:
    """A document's first line with a sign in it, cut to 120 characters: data sets put their titles there."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= TITLE_CHARACTERS else line[: TITLE_CHARACTERS - 1] + "…"


def _candidates(chunks: Sequence[Chunk], trace: Trace, titles: Mapping[str, str]) -> tuple[ExplainedCandidate, ...]:
    seen = zip(chunks, trace.candidates.costs, trace.candidates.priors, strict=True)
    return tuple(
        ExplainedCandidate(
            number=number,
            rank=number + 1,
            doc_id=chunk.doc_id,
            title=titles.get(chunk.doc_id, ""),
            position=chunk.position,
            start=chunk.start,
            end=chunk.end,
            cost=cost,
            prior=_finite(round(prior, MEAN_DECIMALS)),
            fits=cost <= trace.budget_tokens,
            text=chunk.text,
        )
        for number, (chunk, cost, prior) in enumerate(seen)
    )


def _node(node: TracedNode) -> ExplainedNode:
    return ExplainedNode(
        combination=node.combination,
        parent=node.parent,
        asked=node.asked,
        cost=node.cost,
        raw=_finite(node.score.raw) if node.score else None,
        calibrated=_finite(node.score.calibrated) if node.score else None,
        visits=node.visits,
        mean_reward=None if node.mean_reward is None else round(node.mean_reward, MEAN_DECIMALS),
        forbidden=node.forbidden,
    )


def _choice(
    choice: Choice, trace: Trace | None, candidates: Sequence[Chunk], titles: Mapping[str, str]
) -> ExplainedChoice:
    combination = trace.best[0] if trace and trace.best else None
    cost = sum(chunk.cost for chunk in choice.selection)
    room = choice.effective_budget_tokens - cost
    places = {node.combination: place for place, node in enumerate(trace.nodes)} if trace else {}
    costs = trace.candidates.costs if trace else ()
    numbers = {chunk.chunk_id: number for number, chunk in enumerate(candidates)} if trace else {}
    chunks = []
    for place, chunk in enumerate(choice.selection, start=1):
        number = numbers.get(chunk.chunk_id)
        rank = None if number is None else number + 1
        title = titles.get(chunk.doc_id, "")
        chunks.append(ExplainedChunk(place, number, rank, chunk.doc_id, title, chunk.cost, chunk.text))
    return ExplainedChoice(
        combination=combination,
        node=None if combination is None else places.get(combination),
        score=trace.best[1] if trace and trace.best else None,
        cost=cost,
        room_tokens=room,
        no_longer_fits=tuple(n for n, tokens in enumerate(costs) if n not in (combination or ()) and tokens > room),
        chunks=tuple(chunks),
    )


def _finite(value: float) -> float | None:
    """The value; None for one that JSON has no word for."""
    return value if math.isfinite(value) else None
