"""Errors as HTTP answers: one shape, OpenAI's, with one sentence and no traceback."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from corag_ray.errors import (
    ConfigError,
    CoragError,
    DeadlineError,
    MissingModelError,
    OverloadedError,
    RowError,
    UnavailableError,
)
from corag_ray.problems import value_problem

STATUSES: tuple[tuple[type[CoragError], int, str], ...] = (
    (ConfigError, 400, "invalid_request_error"),
    (RowError, 422, "invalid_request_error"),
    (OverloadedError, 503, "overloaded_error"),
    (UnavailableError, 503, "unavailable_error"),
    (MissingModelError, 503, "unavailable_error"),
    (DeadlineError, 504, "timeout_error"),
)
"""Of an error's kind: the status, and the type that OpenAI's clients know. All others are 500, told without words."""
RETRIED = (429, 503)
ERROR_TYPE = "error_type"
"""Where a request's scope has the type of the error that it was answered with, in a stream too."""

_log = logging.getLogger(__name__)


class RequestError(CoragError):
    """A request that is refused with a status of its own."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        """`code` tells machines what is wrong, `message` people."""
        super().__init__(message)
        self.status = status
        self.code = code


def install(app: FastAPI, retry_after_s: int) -> None:
    """Have the errors that routes expect answered in our shape; `gate` does so with all others."""

    async def answer(request: Request, error: Exception) -> JSONResponse:
        status, body = body_of(error, request.scope.get("request_id", ""), _fields_of(request))
        request.scope[ERROR_TYPE] = body["error"]["type"]
        return JSONResponse(body, status, headers_of(status, retry_after_s))

    for kind in (CoragError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, answer)


def body_of(error: BaseException, request_id: str, fields: Collection[str] = ()) -> tuple[int, dict[str, Any]]:
    """Status and body of an error; `fields` are the keys that the body may have, to suggest the one that was meant."""
    param = code = None
    if isinstance(error, RequestError):
        status, kind, message, code = error.status, _type_of(error.status), str(error), error.code
    elif isinstance(error, RequestValidationError):
        status, kind = 400, "invalid_request_error"
        param, message = _problem(error.errors(), fields)
    elif isinstance(error, HTTPException):
        status, kind, message = error.status_code, _type_of(error.status_code), f"{error.detail}."
    else:
        status, kind, message = _told(error, request_id)
    message = message.encode("utf-8", "replace").decode("utf-8")
    return status, {"error": {"message": message, "type": kind, "param": param, "code": code}, "request_id": request_id}


def headers_of(status: int, retry_after_s: int) -> dict[str, str]:
    """Where trying again may help, when."""
    return {"Retry-After": str(retry_after_s)} if status in RETRIED else {}


def _told(error: BaseException, request_id: str) -> tuple[int, str, str]:
    for kind, status, name in STATUSES:
        if isinstance(error, kind):
            return status, name, str(error)
    _log.error("request %s failed", request_id, exc_info=error)
    return 500, "server_error", "the service failed at this request: its log has the reason under the request's id."


def _type_of(status: int) -> str:
    known = {401: "authentication_error", 404: "not_found_error", 429: "overloaded_error", 503: "overloaded_error"}
    return known.get(status, "invalid_request_error" if status < 500 else "server_error")


def _problem(errors: Sequence[Any], fields: Collection[str]) -> tuple[str | None, str]:
    """Which parameter is wrong, and the sentence about it."""
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"][1:]) or "body"
    if first["type"] == "json_invalid":
        return None, "the body is no JSON."
    if len(first["loc"]) == 1:
        return None, "the body must be a JSON object, sent with `Content-Type: application/json`."
    if first["type"] == "extra_forbidden":
        close = difflib.get_close_matches(str(first["loc"][-1]), fields, n=1) if len(first["loc"]) == 2 else []
        return place, f"unknown key '{place}'; " + (f"did you mean '{close[0]}'?" if close else "remove it.")
    return place, value_problem(place, first)


def _fields_of(request: Request) -> Collection[str]:
    """The keys that the route's body may have."""
    field = getattr(request.scope.get("route"), "body_field", None)
    model = getattr(getattr(field, "field_info", None), "annotation", None)
    return getattr(model, "model_fields", {}).keys()
