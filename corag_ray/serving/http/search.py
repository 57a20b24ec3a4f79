"""POST /v1/search: the first stage alone; GET /health and /ready; GET /v1/models."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from corag_ray.serving.http.answer import Source, source_of
from corag_ray.serving.http.bodies import Body, QuestionText, Whole, asked_of
from corag_ray.serving.http.service import Edge


class SearchRequest(Body):
    """A query, and how many chunks at most."""

    query: QuestionText
    top_k: Whole | None = None
    deadline_ms: Whole | None = None

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "Eiffel Tower height", "top_k": 5}]})


class Hit(Source):
    """A chunk with its first-stage score."""

    score: float


class Hits(BaseModel):
    """Chunks, best first."""

    id: str
    hits: list[Hit]
    index_version: str


def routes(edge: Edge) -> APIRouter:
    """The routes."""
    router = APIRouter()
    started_s = int(time.time())

    @router.post("/v1/search", tags=["search"])
    async def search(body: SearchRequest, request: Request) -> Hits:
        """Find chunks, without a reranker."""
        request_id = request.scope["request_id"]
        asked = asked_of(edge.settings, request_id, body.query, num_candidates=body.top_k, deadline_ms=body.deadline_ms)
        number = asked.num_candidates or edge.settings.config.retrieval.num_candidates
        found = await edge.service.search(body.query, number, asked.deadline_s)
        hits = [
            Hit(**source_of(chunk).model_dump(), score=score)
            for chunk, score in zip(found.chunks, found.scores, strict=True)
        ]
        return Hits(id=request_id, hits=hits, index_version=found.index_version)

    @router.get("/v1/models", tags=["chat"])
    async def models() -> dict[str, Any]:
        """The models that chat completions may name: methods, alone or with a reranker."""
        shown = {"object": "model", "created": started_s, "owned_by": "corag_ray"}
        return {"object": "list", "data": [{"id": name, **shown} for name in model_names(edge)]}

    @router.get("/health", tags=["service"])
    async def health() -> dict[str, str]:
        """That this process answers."""
        return {"status": "ok"}

    @router.get("/ready", tags=["service"])
    async def ready() -> JSONResponse:
        """Whether every part that requests need answers."""
        parts = await edge.service.ready()
        up = all(parts.values())
        retry = {} if up else {"Retry-After": str(edge.settings.http.retry_after_s)}
        return JSONResponse({"ready": up, "parts": parts}, 200 if up else 503, retry)

    return router


def model_names(edge: Edge) -> list[str]:
    """Methods, and METHOD/RERANKER for those that search."""
    methods = {name: method for name, method in edge.settings.config.methods.items() if method.source != "gold"}
    names = list(methods)
    names += [f"{name}/{pool}" for name, method in methods.items() if method.strategy for pool in edge.settings.pools]
    return names
