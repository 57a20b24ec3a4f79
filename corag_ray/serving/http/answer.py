"""POST /v1/answer: a question answered from the corpus within a budget, at once or as events."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from corag_ray.config import Strategy
from corag_ray.reports.explanation import Explanation, explained
from corag_ray.selection import Choice, Choices
from corag_ray.serving.http import sse
from corag_ray.serving.http.bodies import AUTO, Body, Name, QuestionText, Whole, asked_of
from corag_ray.serving.http.service import Edge
from corag_ray.serving.messages import Asked, Selected, Stage
from corag_ray.types import Chunk, Generation

LATE = "the request's time was up: the answer ends where it was."
EXAMPLE: dict[str, Any] = {
    "question": "How high is the Eiffel Tower?",
    "budget_tokens": 256,
    "method": "corag",
    "reranker": "auto",
}


class AnswerRequest(Body):
    """A question; what is left out the configuration says."""

    question: QuestionText
    language: Name = "en"
    budget_tokens: Whole | None = Field(None, description="Tokens that the selection may cost.")
    method: Name | None = Field(None, description="A method of the configuration; by default the agent's choice.")
    strategy: Strategy | None = Field(None, description="Instead of the method's own.")
    reranker: Name = Field(AUTO, description="A pool's name, or `auto`.")
    num_candidates: Whole | None = None
    pair_limit: Whole | None = Field(None, description="Combinations that are scored, at most.")
    deadline_ms: Whole | None = Field(None, description="Then the best that was found so far is the answer.")
    max_new_tokens: Whole | None = None
    generate: bool = Field(True, description="Without it only the selection is made.")
    explain: bool = Field(False, description="Also tell what the search went through, and keep it for `/v1/explain`.")
    stream: bool = Field(False, description="Answer as events: `stage`, `token`, then `done`, or `error`.")

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})


class Source(BaseModel):
    """A chunk: characters `start` to `end` of a document, and its cost in tokens."""

    doc_id: str
    start: int
    end: int
    cost: int
    text: str
    chunk_id: str


class Answer(BaseModel):
    """The answer, what it rests on, and what it took.

    `degraded` is true where something was done otherwise than asked; `degraded_because` says what. `explanation` is
    what the search went through, of the schema in `docs/explain.md`, where that was asked for.
    """

    id: str
    question: str
    answer: str | None
    finish_reason: str | None
    sources: list[Source]
    method: str
    reranker: str | None
    score: float | None
    budget_tokens: int
    effective_budget_tokens: int
    context_tokens: int
    prompt_tokens: int
    new_tokens: int
    pairs: int
    pairs_computed: int
    pairs_unscored: int
    stopped_by: str
    degraded: bool
    degraded_because: list[str]
    notes: list[str]
    index_version: str | None
    latency_ms: dict[str, float]
    explanation: Explanation | None


def routes(edge: Edge) -> APIRouter:
    """The route."""
    router = APIRouter(tags=["answers"])

    @router.post("/v1/answer", response_model=Answer)
    async def answer(body: AnswerRequest, request: Request) -> Answer | StreamingResponse:
        """Answer a question from the corpus, within a budget of tokens."""
        request_id: str = request.scope["request_id"]
        values = body.model_dump(exclude={"question", "strategy", "generate", "stream"})
        asked = asked_of(edge.settings, request_id, body.question, strategy=body.strategy, **values)
        if body.stream:
            events = await sse.begun(_events(edge, body, asked))
            return sse.response(events, request.scope, named=True)
        selected = await edge.service.select(asked)
        if not (body.generate and edge.settings.config.generation.enabled):
            return await _kept(edge, answer_of(asked, selected, None, 0.0))
        started = time.perf_counter()
        written = await edge.service.generate(selected.choice.prompt, asked.max_new_tokens, asked.deadline_s)
        generate_ms = (time.perf_counter() - started) * 1000
        return await _kept(edge, answer_of(asked, selected, written, generate_ms))

    return router


def answer_of(asked: Asked, selected: Selected, written: Generation | None, generate_ms: float) -> Answer:
    """The answer's body."""
    choice = selected.choice
    degraded, stopped_by = list(selected.degraded), selected.stopped_by
    if written is not None:
        choice = replace(choice, latency_ms=choice.latency_ms | {"generate": generate_ms})
        if cut_by_deadline(asked, written):
            stopped_by = "deadline"
            degraded.append(LATE)
    return Answer(
        id=asked.question.question_id,
        question=asked.question.text,
        answer=written.text if written else None,
        finish_reason=written.finish_reason if written else None,
        sources=[source_of(chunk) for chunk in choice.selection],
        method=selected.method,
        reranker=choice.reranker,
        score=choice.score,
        budget_tokens=asked.budget_tokens,
        effective_budget_tokens=choice.effective_budget_tokens,
        context_tokens=choice.context_tokens,
        prompt_tokens=choice.prompt_tokens,
        new_tokens=written.new_tokens if written else 0,
        pairs=choice.pairs,
        pairs_computed=choice.pairs_computed,
        pairs_unscored=choice.pairs_unscored,
        stopped_by=stopped_by,
        degraded=bool(degraded),
        degraded_because=degraded,
        notes=choice.notes,
        index_version=selected.index_version,
        latency_ms={stage: round(ms, 3) for stage, ms in choice.latency_ms.items()},
        explanation=_explanation(asked, selected, choice) if asked.explain else None,
    )


def _explanation(asked: Asked, selected: Selected, choice: Choice) -> Explanation:
    choices = Choices(
        asked.question,
        index_version=selected.index_version or "",  # no index was asked
        candidates=list(selected.candidates),
        methods={selected.method: choice},
    )
    return explained(choices, selected.method, selected.settings)


def cut_by_deadline(asked: Asked, written: Generation) -> bool:
    """Whether an answer ended because the request's time was up."""
    return written.finish_reason == "length" and written.new_tokens < asked.max_new_tokens


def source_of(chunk: Chunk) -> Source:
    """A chunk as it is told."""
    place = {"doc_id": chunk.doc_id, "start": chunk.start, "end": chunk.end, "cost": chunk.cost}
    return Source(**place, text=chunk.text, chunk_id=f"{chunk.chunk_id:016x}")


async def _events(edge: Edge, body: AnswerRequest, asked: Asked) -> AsyncGenerator[str, None]:
    """Stages, then tokens, then the whole answer."""
    selected: Selected | None = None
    async with aclosing(edge.service.stages(asked)) as stages:
        async for stage in stages:
            if isinstance(stage, Stage):
                told: dict[str, Any] = {"stage": stage.name, "ms": round(stage.milliseconds, 3), **stage.facts}
                yield sse.event(told, "stage")
            else:
                selected = stage
    assert selected is not None, "the stages end with the selection"
    written: Generation | None = None
    started = time.perf_counter()
    if body.generate and edge.settings.config.generation.enabled:
        pieces = edge.service.stream(selected.choice.prompt, asked.max_new_tokens, asked.deadline_s)
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, Generation):
                    written = piece
                else:
                    yield sse.event({"text": piece}, "token")
    generate_ms = (time.perf_counter() - started) * 1000
    answer = await _kept(edge, answer_of(asked, selected, written, generate_ms))
    yield sse.event(answer.model_dump(mode="json"), "done")


async def _kept(edge: Edge, answer: Answer) -> Answer:
    """The answer, kept for `/v1/explain` if it is explained."""
    if answer.explanation is not None:
        await edge.service.keep(answer.id, answer.model_dump_json().encode())
    return answer
