"""POST /v1/rerank in Cohere's and Jina's shape; with a budget also the best ordered combination."""

from __future__ import annotations

import math
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from corag_ray.errors import ConfigError
from corag_ray.serving.http.bodies import AUTO, Body, Name, QuestionText, Text, Whole, asked_of, check_most
from corag_ray.serving.http.service import Edge
from corag_ray.serving.messages import Ranked, Selected

EXAMPLE: dict[str, Any] = {
    "model": "late_interaction",
    "query": "How high is the Eiffel Tower?",
    "documents": ["The tower is 330 metres high.", "Tea is grown on slopes.", "It was finished in 1889."],
    "top_n": 2,
    "budget_tokens": 32,
}
UNIT_DOCUMENTS = 100
"""Cohere counts a query with so many documents as one unit of search."""


class Document(BaseModel):
    """A document as an object."""

    text: Text


class RerankRequest(Body):
    """A query and documents, which need not be in the corpus."""

    model: Name = Field(AUTO, description="A pool's name, or `auto`.")
    query: QuestionText
    documents: Annotated[list[Text | Document], Field(min_length=1)]
    top_n: Whole | None = None
    return_documents: bool = False
    budget_tokens: Whole | None = Field(None, description="Also choose the best ordered combination within it.")
    method: Name | None = Field(None, description="How that is searched.")
    pair_limit: Whole | None = None
    deadline_ms: Whole | None = None

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})


class Usage(BaseModel):
    """Tokens of the documents, as the generator counts them."""

    total_tokens: int
    prompt_tokens: int


def routes(edge: Edge) -> APIRouter:
    """The route, under the paths of both of Cohere's versions."""
    router = APIRouter(tags=["search"])

    @router.post("/v1/rerank")
    @router.post("/v2/rerank", include_in_schema=False)
    async def rerank(body: RerankRequest, request: Request) -> dict[str, Any]:
        """Rank documents for a query; with a budget also choose and order the best of them."""
        texts = tuple(text.text if isinstance(text, Document) else text for text in body.documents)
        check_most("documents", len(texts), edge.settings.http.max_documents, "entries")
        if not all(text.strip() for text in texts):
            raise ConfigError("'documents' holds an empty text: leave it out.")
        asked = asked_of(
            edge.settings,
            request.scope["request_id"],
            body.query,
            reranker=body.model,
            documents=texts,
            **body.model_dump(include={"budget_tokens", "method", "pair_limit", "deadline_ms"}),
        )
        ranked = await edge.service.rerank(asked, body.budget_tokens is not None)
        return _answer(body, texts, asked.question.question_id, ranked)

    return router


def _answer(body: RerankRequest, texts: tuple[str, ...], request_id: str, ranked: Ranked) -> dict[str, Any]:
    """Cohere's keys and Jina's; a document that could not be scored stands last, with 0."""
    results: list[dict[str, Any]] = [
        {"index": number, "relevance_score": score or 0.0} for number, score in ranked.ranking[: body.top_n]
    ]
    if body.return_documents:
        results = [result | {"document": {"text": texts[result["index"]]}} for result in results]
    degraded = [*ranked.degraded, *(ranked.selected.degraded if ranked.selected else ())]
    unscored = sum(score is None for _, score in ranked.ranking)
    return {
        "id": request_id,
        "object": "list",
        "model": ranked.reranker,
        "results": results,
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"search_units": math.ceil(len(texts) / UNIT_DOCUMENTS)},
        },
        "usage": Usage(total_tokens=ranked.tokens, prompt_tokens=ranked.tokens).model_dump(),
        "combination": None if ranked.selected is None else _combination(ranked.selected),
        "unscored": unscored,
        "degraded": bool(degraded),
        "degraded_because": degraded,
    }


def _combination(selected: Selected) -> dict[str, Any]:
    """The chosen documents' numbers, in their order."""
    choice = selected.choice
    return {
        "indices": [int(chunk.doc_id) for chunk in choice.selection],
        "score": choice.score,
        "cost_tokens": sum(chunk.cost for chunk in choice.selection),
        "budget_tokens": choice.effective_budget_tokens,
        "method": selected.method,
        "pairs": choice.pairs,
        "stopped_by": selected.stopped_by,
        "notes": choice.notes,
    }
