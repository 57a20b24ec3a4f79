"""GET /v1/explain/{request_id}: the answer to a request that asked for it, with what its search went through."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from corag_ray.serving.http.errors import RequestError
from corag_ray.serving.http.service import Edge


def routes(edge: Edge) -> APIRouter:
    """The route."""
    router = APIRouter(tags=["answers"])

    @router.get("/v1/explain/{request_id}")
    async def explain(request_id: str) -> Response:
        """The whole answer to one of the last requests with `explain`, its `explanation` included."""
        text = await edge.service.explanation(request_id)
        if text is None:
            raise RequestError(404, f"there is no explanation of '{request_id[:128]}': ask with `explain`, or again.")
        return Response(text, media_type="application/json")

    return router
