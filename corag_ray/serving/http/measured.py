"""What stands outside the gate: every request that is work is counted by how it ended, and timed."""

from __future__ import annotations

import asyncio
import time

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from corag_ray.serving.http.errors import ERROR_TYPE
from corag_ray.serving.http.gate import GUARDED
from corag_ray.serving.metrics import REQUEST_MS, REQUESTS, UnderWay

ROUTES = ("answer", "chat", "explain", "models", "rerank", "search")
"""Values of the tag `route`: the part of the path behind the version, or `other` for a path that no route has."""
OUTCOMES = {
    None: "answered",
    "authentication_error": "unauthorized",
    "overloaded_error": "shed",
    "unavailable_error": "unavailable",
    "timeout_error": "late",
    "server_error": "failed",
}
"""Of the type of the error that a request was answered with, noted in its scope; all others are `bad`."""


class Measured:
    """ASGI middleware: changes nothing of a request."""

    def __init__(self, app: ASGIApp) -> None:
        """Around the gate, so that what it refuses is counted too."""
        self._app = app
        self._under_way = UnderWay("requests")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http" or not scope["path"].startswith(GUARDED):
            await self._app(scope, receive, send)
            return
        whole = False

        async def noting_the_end(message: Message) -> None:
            nonlocal whole
            await send(message)
            whole = message["type"] == "http.response.body" and not message.get("more_body", False)

        started = time.perf_counter()
        outcome = "failed"
        try:
            with self._under_way:
                await self._app(scope, receive, noting_the_end)
            # A stream whose reader has left ends without its last part and without an error.
            outcome = OUTCOMES.get(scope.get(ERROR_TYPE), "bad") if whole else "cancelled"
        except (asyncio.CancelledError, ClientDisconnect):
            outcome = "cancelled"
            raise
        finally:
            route = route_of(scope["path"])
            REQUESTS.add(route=route, outcome=outcome)
            REQUEST_MS.observe((time.perf_counter() - started) * 1000, route=route)


def route_of(path: str) -> str:
    """The value of the tag `route`, one of a few whatever the path.

    >>> route_of("/v1/chat/completions"), route_of("/v1/explain/0f3a"), route_of("/v1/../etc")
    ('chat', 'explain', 'other')
    """
    name = path.split("/")[2]
    return name if name in ROUTES else "other"
