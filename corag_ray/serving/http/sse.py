"""Server-sent events: how they are written, and a response of them that ends with its reader."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.types import Scope

from corag_ray.serving.http.errors import ERROR_TYPE, body_of

HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Neither kept nor gathered on the way: each event is to be seen at once."""
DONE = "data: [DONE]\n\n"
"""What ends a stream in OpenAI's manner."""


def event(data: Any, name: str | None = None) -> str:
    """One event; its data are JSON on one line."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


async def begun(events: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """The same events, the first of which has come: an error before it is an error of the request, with its status."""
    first = await anext(events)

    async def all_events() -> AsyncGenerator[str, None]:
        async with aclosing(events):
            yield first
            async for one in events:
                yield one

    return all_events()


def response(events: AsyncGenerator[str, None], scope: Scope, *, named: bool) -> StreamingResponse:
    """A request's events as they come; an error among them is the last one, `named` "error" where they have names."""
    return StreamingResponse(_told(events, scope, named), media_type="text/event-stream", headers=HEADERS)


async def _told(events: AsyncGenerator[str, None], scope: Scope, named: bool) -> AsyncIterator[str]:
    try:
        async with aclosing(events):
            async for one in events:
                yield one
    except Exception as error:
        _, body = body_of(error, scope["request_id"])
        scope[ERROR_TYPE] = body["error"]["type"]
        yield event(body, "error" if named else None)
