"""The HTTP application: routes, errors and the gate before them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence

from fastapi import FastAPI

from corag_ray.serving.http import answer, chat, errors, explain, rerank, search
from corag_ray.serving.http.gate import Gate
from corag_ray.serving.http.measured import Measured
from corag_ray.serving.http.service import Edge, Service
from corag_ray.serving.settings import ServingSettings

DESCRIPTION = "Cost-constrained retrieval for RAG: ordered chunk combinations under a token budget."


def make_app(service: Service, settings: ServingSettings, keys: Sequence[str] = (), *, tell_id: bool = True) -> FastAPI:
    """The application over a service; without `keys` everyone is let in, and `tell_id` is the gate's."""
    version = importlib.metadata.version("corag_ray")
    app = FastAPI(title="corag_ray", description=DESCRIPTION, version=version)
    edge = Edge(service, settings)
    for part in (answer, chat, explain, rerank, search):
        app.include_router(part.routes(edge))
    errors.install(app, settings.http.retry_after_s)
    app.add_middleware(Gate, limits=settings.http, keys=keys, tell_id=tell_id)
    app.add_middleware(Measured)  # added last, it stands first
    return app
