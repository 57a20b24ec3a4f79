"""What stands before every route: request ids, keys, the body's size, and how many requests are let in."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from corag_ray.errors import ConfigError
from corag_ray.serving.http.errors import ERROR_TYPE, RequestError, body_of, headers_of
from corag_ray.serving.settings import Http

GUARDED = ("/v1/", "/v2/")
"""Paths that take a key and count as work."""
REQUEST_ID = "x-request-id"
LONGEST_LENGTH = 15
"""Digits of a body's length: of thousands Python makes no number."""


class Gate:
    """ASGI middleware: lets a request through with its id in the scope, or refuses it before anything is computed.

    An error that no route expected ends here as well, in the same shape.
    """

    def __init__(self, app: ASGIApp, limits: Http, keys: Sequence[str], *, tell_id: bool = True) -> None:
        """Without `keys` everyone is let in. `tell_id`: answers carry the id; Ray Serve has them do so itself."""
        self._app = app
        self._tell_id = tell_id
        self._limits = limits
        self._keys = [_digest(key) for key in keys]
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = scope["request_id"] = id_of(headers)

        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                if self._tell_id:
                    MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        guarded = scope["path"].startswith(GUARDED)
        try:
            if guarded:
                self._check_key(headers)
            receive = await self._whole_body(headers, receive)
            await self._counted(guarded, scope, receive, send_with_id)
        except Exception as error:
            if started:
                raise
            status, body = body_of(error, request_id)
            scope[ERROR_TYPE] = body["error"]["type"]
            retry = headers_of(status, self._limits.retry_after_s)
            await JSONResponse(body, status, retry)(scope, receive, send_with_id)

    async def _counted(self, guarded: bool, scope: Scope, receive: Receive, send: Send) -> None:
        if guarded and self._in_flight >= self._limits.max_in_flight:
            raise RequestError(429, f"{self._in_flight} requests are under way: ask again in a moment.")
        self._in_flight += guarded
        try:
            await self._app(scope, receive, send)
        finally:
            self._in_flight -= guarded

    def _check_key(self, headers: Headers) -> None:
        if not self._keys:
            return
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = _digest(bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", ""))
        # All are compared, each in constant time: how long it takes tells nothing of how near a guess was.
        if not any([hmac.compare_digest(given, key) for key in self._keys]):
            raise RequestError(401, "a valid key is needed: send `Authorization: Bearer KEY`.", "invalid_api_key")

    async def _whole_body(self, headers: Headers, receive: Receive) -> Receive:
        """Read the body as far as it may go; gives what the route is to receive instead."""
        most = self._limits.max_body_bytes
        too_large = RequestError(413, f"the body is larger than {most:,} bytes.")
        length = headers.get("content-length", "")
        if re.fullmatch(r"[0-9]+", length) and (len(length) > LONGEST_LENGTH or int(length) > most):
            raise too_large
        parts: list[bytes] = []
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                break
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
            if sum(map(len, parts)) > most:
                raise too_large
        whole: list[Message] = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        return replay


def id_of(headers: Headers) -> str:
    """The id that the client gave its request, if it is a plain one, or a new one."""
    given = headers.get(REQUEST_ID, "")
    return given if re.fullmatch(r"[A-Za-z0-9_.:-]{1,128}", given) else secrets.token_hex(16)


def read_keys(limits: Http) -> list[str]:
    """The keys that let in: from the environment variable and from the file, those that are set.

    Raises:
        ConfigError: the file cannot be read, or holds none: then nobody could come in, or everybody.
    """
    keys = [key.strip() for key in os.environ.get(limits.keys_variable, "").split(",")]
    if limits.keys_file is not None:
        keys += _keys_in(limits.keys_file)
    return [key for key in keys if key]


def _keys_in(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise ConfigError(f"args.http.keys_file: {path} cannot be read: {type(error).__name__}.") from error
    if not any(lines):
        raise ConfigError(f"args.http.keys_file: {path} holds no key: write one a line, or leave the setting out.")
    return lines


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
