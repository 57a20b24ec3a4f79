"""POST /v1/chat/completions in OpenAI's shape: the last user message is the question, `model` the method."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from corag_ray.errors import ConfigError, unknown_name
from corag_ray.serving.http import sse
from corag_ray.serving.http.answer import answer_of, source_of
from corag_ray.serving.http.bodies import Body, Name, Text, Whole, asked_of
from corag_ray.serving.http.errors import RequestError
from corag_ray.serving.http.search import model_names
from corag_ray.serving.http.service import Edge
from corag_ray.serving.messages import Asked, Selected
from corag_ray.types import Generation

MOST_MESSAGES = 1_000
EXAMPLE: dict[str, Any] = {
    "model": "corag",
    "messages": [{"role": "user", "content": "How high is the Eiffel Tower?"}],
    "stream": False,
}
UNSUPPORTED = ("tools", "functions", "response_format", "logprobs", "stop", "logit_bias", "audio", "modalities")
"""What would change the answer in a way that this service cannot."""


class TextPart(BaseModel):
    """A part of a message's content; only text can be read."""

    type: Literal["text"]
    text: Text


class Message(BaseModel):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | list[TextPart] | None = None
    name: Name | None = None

    @property
    def text(self) -> str:
        """Its text, parts joined."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class StreamOptions(BaseModel):
    """What a stream holds beside the pieces."""

    include_usage: bool = False


class ChatRequest(Body):
    """OpenAI's request. Answers are greedy, so sampling settings change nothing; what else is not done is refused."""

    model: Name
    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_MESSAGES)]
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Whole | None = None
    max_completion_tokens: Whole | None = None
    n: Literal[1] | None = None
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    presence_penalty: float | None = Field(None, ge=-2, le=2, allow_inf_nan=False)
    frequency_penalty: float | None = Field(None, ge=-2, le=2, allow_inf_nan=False)
    seed: int | None = None
    user: Name | None = None
    metadata: dict[str, Text] | None = None
    store: bool | None = None
    tools: Any = None
    functions: Any = None
    response_format: Any = None
    logprobs: Any = None
    stop: Any = None
    logit_bias: Any = None
    audio: Any = None
    modalities: Any = None

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})


def routes(edge: Edge) -> APIRouter:
    """The route."""
    router = APIRouter(tags=["chat"])

    @router.post("/v1/chat/completions")
    async def completions(body: ChatRequest, request: Request) -> Response:
        """Answer the last user message from the corpus; the answer carries its citations."""
        asked, unread = chat_asked(edge, body, request.scope["request_id"])
        selected = await edge.service.select(asked)
        if body.stream:
            events = await sse.begun(_events(edge, body, asked, selected, unread))
            return sse.response(events, request.scope, named=False)
        written = await edge.service.generate(selected.choice.prompt, asked.max_new_tokens, asked.deadline_s)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": written.text, "refusal": None},
            "logprobs": None,
            "finish_reason": written.finish_reason,
        }
        whole = {"choices": [choice], "usage": _usage(written), **_citations(asked, selected, written, unread)}
        return JSONResponse(_head(body, asked, "chat.completion") | whole)

    return router


def chat_asked(edge: Edge, body: ChatRequest, request_id: str) -> tuple[Asked, int]:
    """The request behind a conversation, and how many of its messages are not read.

    Raises:
        ConfigError: it asks for what is not done here.
        RequestError: there is no such model, or nothing is generated here.
    """
    if not edge.settings.config.generation.enabled:
        raise RequestError(404, "generation is switched off here: ask /v1/answer for selections.")
    if unsupported := [name for name in UNSUPPORTED if getattr(body, name)]:
        raise ConfigError(f"'{unsupported[0]}' is not supported here: leave it out.")
    if body.model not in (names := model_names(edge)):
        raise RequestError(404, str(unknown_name("model", body.model, names)), "model_not_found")
    question = next((message.text for message in reversed(body.messages) if message.role == "user"), "")
    if not question.strip():
        raise ConfigError("'messages' holds no user message with a question.")
    method, _, reranker = body.model.partition("/")
    asked = asked_of(
        edge.settings,
        request_id,
        question,
        method=method,
        reranker=reranker or None,
        max_new_tokens=body.max_completion_tokens or body.max_tokens,
    )
    return asked, len(body.messages) - 1


async def _events(
    edge: Edge, body: ChatRequest, asked: Asked, selected: Selected, unread: int
) -> AsyncGenerator[str, None]:
    """Chunks: the role, the pieces, why it ended with the citations, the usage if asked for, and the end."""
    head = _head(body, asked, "chat.completion.chunk")
    no_usage = {"usage": None} if body.stream_options and body.stream_options.include_usage else {}

    def chunk(delta: dict[str, Any], finish_reason: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return sse.event(head | {"choices": [choice]} | no_usage | more)

    yield chunk({"role": "assistant", "content": ""})
    pieces = edge.service.stream(selected.choice.prompt, asked.max_new_tokens, asked.deadline_s)
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, Generation):
                yield chunk({}, piece.finish_reason, **_citations(asked, selected, piece, unread))
                if no_usage:
                    yield sse.event(head | {"choices": [], "usage": _usage(piece)})
            else:
                yield chunk({"content": piece})
    yield sse.DONE


def _head(body: ChatRequest, asked: Asked, kind: str) -> dict[str, Any]:
    name = f"chatcmpl-{asked.question.question_id}"
    return {"id": name, "object": kind, "created": int(time.time()), "model": body.model}


def _usage(written: Generation) -> dict[str, int]:
    total = written.prompt_tokens + written.new_tokens
    return {"prompt_tokens": written.prompt_tokens, "completion_tokens": written.new_tokens, "total_tokens": total}


def _citations(asked: Asked, selected: Selected, written: Generation, unread: int) -> dict[str, Any]:
    """What the answer rests on, numbered as in the prompt, and under `corag` what it took."""
    sources = [source_of(chunk).model_dump() for chunk in selected.choice.selection]
    answer = answer_of(asked, selected, written, 0.0).model_dump()
    kept = ("reranker", "budget_tokens", "context_tokens", "pairs", "stopped_by", "degraded", "degraded_because")
    told = {key: answer[key] for key in (*kept, "notes")}
    if unread:
        told["notes"] = [*told["notes"], f"the question is the last user message: {unread} others were not read"]
    return {"citations": [{"number": n, **source} for n, source in enumerate(sources, start=1)], "corag": told}
