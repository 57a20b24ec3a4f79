"""A language model behind any server that speaks OpenAI's chat completions (vLLM, llama.cpp, Ollama, and others)."""

from __future__ import annotations

import json
import logging
import math
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from corag_ray.errors import ConfigError, CoragError, RowError
from corag_ray.models.http_client import LONGEST_TIME_S, check_address, ending_by, open_client
from corag_ray.models.protocols import PromptTokenizer
from corag_ray.types import Generation

MOST_BYTES = 4_000_000
"""Of one response, at most: a server is not trusted to end."""
LONGEST_BACKOFF_S = 30.0
RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
REFUSED_PROMPT = frozenset({400, 413, 422})
KEY_SHOWN = "(the key)"
"""Stands for the key in errors. Answers stay as they are: local servers' keys are often plain words."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the server is and how patiently it is asked.

    `key_variable` names the environment variable that holds the key; without that variable no key is sent. `timeout_s`
    bounds every read and write, `attempts` the tries of one prompt and `total_s` their time with all waits, whatever
    the server sends meanwhile; `concurrency` bounds the prompts under way.
    """

    base_url: str
    model: str
    key_variable: str = "OPENAI_API_KEY"
    timeout_s: float = 120.0
    attempts: int = 5
    concurrency: int = 8
    first_wait_s: float = 0.5
    seed: int = 0
    total_s: float = 600.0

    def __post_init__(self) -> None:
        """Refuse an address that no request can go to, or that holds a secret, and numbers that ask nothing."""
        check_address(self.base_url, self.key_variable)
        place = "generation.server"
        if self.attempts < 1 or self.concurrency < 1:
            raise ConfigError(f"{place}.attempts and {place}.concurrency must be at least 1.")
        if not all(0 < seconds <= LONGEST_TIME_S for seconds in (self.timeout_s, self.total_s, self.first_wait_s)):
            raise ConfigError(f"{place}: every time must be above 0 and at most {LONGEST_TIME_S:,.0f} seconds.")


class OpenAIGenerator:
    """Greedy answers (temperature 0 and a fixed seed: what a server makes of them is its own affair)."""

    def __init__(
        self,
        settings: ServerSettings,
        tokenizer: PromptTokenizer | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Open a connection pool; nothing is sent yet.

        `tokenizer` is what the costs were counted with: it stands in where the server counts nothing, and a server that
        counts more is reported once, since budgets then do not hold.

        Raises:
            ConfigError: the key cannot be sent, or the environment names a proxy or certificates of no use.
        """
        self.name = settings.model
        self._settings = settings
        self._tokenizer = tokenizer
        self._warned = False
        self._key = key = os.environ.get(settings.key_variable, "").strip()
        if not (key.isascii() and key.isprintable()):
            raise ConfigError(f"the key in {settings.key_variable} holds signs that no header can: copy it anew.")
        # Not compressed: a small response could unpack to a huge one.
        headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {})
        base_url = settings.base_url.rstrip("/") + "/"
        self._client = open_client(base_url, headers, settings.concurrency, transport)

    def generate(self, prompts: Sequence[str], max_new_tokens: int) -> list[Generation | RowError]:
        """One answer a prompt, in order; a prompt that the server refuses or keeps failing on has its error instead.

        Raises:
            ConfigError: the server refuses the key, or knows no such model or address.
            CoragError: the server cannot be reached.
        """
        with ThreadPoolExecutor(self._settings.concurrency) as pool:
            return list(pool.map(lambda prompt: self._one(prompt, max_new_tokens), prompts))

    def stream(self, prompt: str, max_new_tokens: int) -> Iterator[str | Generation]:
        """See `StreamingGenerator`: the pieces as the server sends them; one try alone.

        Raises:
            RowError: the prompt was refused, the server is busy or out of reach, or the stream broke.
            ConfigError: the server refuses the key, or knows no such model or address.
        """
        _check_sendable(prompt)
        body = self._body(prompt, max_new_tokens) | {"stream": True, "stream_options": {"include_usage": True}}
        deadline = time.monotonic() + self._settings.total_s
        pieces: list[str] = []
        counts: tuple[int, int] | None = None
        finish = "stop"
        try:
            with self._request(body, deadline) as response:
                if response.status_code != 200:
                    self._refuse(response.status_code, b"".join(_parts(response)))
                for line in _lines(_parts(response)):
                    data = line.removeprefix(b"data:").strip()
                    if not line.startswith(b"data:") or not data:
                        continue
                    if data == b"[DONE]":
                        yield self._whole_answer(prompt, "".join(pieces).strip(), counts, finish)
                        return
                    piece, ended, usage = _event(data, self._key)
                    finish, counts = ended or finish, usage or counts
                    pieces.append(piece)
                    yield piece
        except httpx.HTTPError as error:
            raise RowError(f"the stream from {self._settings.base_url} broke: {_what(error)}.") from error
        raise RowError(f"the stream from {self._settings.base_url} ended before it was done.")

    def _one(self, prompt: str, max_new_tokens: int) -> Generation | RowError:
        deadline = time.monotonic() + self._settings.total_s
        problem, attempt = "", 0
        while True:
            attempt, wait = attempt + 1, 0.0
            try:
                _check_sendable(prompt)
                body = self._body(prompt, max_new_tokens)
                with self._request(body, deadline) as response:
                    content = b"".join(_parts(response))
                    if response.status_code == 200:
                        return self._counted(prompt, content)
                    if response.status_code not in RETRIED:
                        self._refuse(response.status_code, content)
                    wait = _retry_after(response.headers.get("retry-after"))
                    problem = f"it answered with status {response.status_code}{_asks(wait)}"
            except RowError as error:
                return error
            except httpx.HTTPError as error:
                problem = _what(error)
            backoff = min(LONGEST_BACKOFF_S, self._settings.first_wait_s * 2 ** (attempt - 1))
            wait = max(wait, backoff * random.uniform(0.5, 1.0))  # many clients must not come back all at once
            if attempt >= self._settings.attempts or time.monotonic() + wait >= deadline:
                break
            _log.info("try %d at %s in %.1f s: %s", attempt + 1, self._settings.base_url, wait, problem)
            time.sleep(wait)
        tries = f"{attempt} of {self._settings.attempts} tries within {self._settings.total_s:g} s"
        message = f"no answer from {self._settings.base_url} after {tries}: {problem}."
        if problem.startswith("cannot connect"):
            raise CoragError(f"{message} Start the server or mend generation.server.base_url.")
        return RowError(message)

    def _counted(self, prompt: str, content: bytes) -> Generation:
        """The answer with the server's token counts, or the tokenizer's where the server sends none."""
        return self._whole_answer(prompt, *_completion(content, self._key))

    def _whole_answer(self, prompt: str, text: str, counts: tuple[int, int] | None, finish: str) -> Generation:
        if self._tokenizer is None:
            if counts is None:
                raise RowError("the server's response counts no tokens: use a server that sends `usage`.")
            return Generation(text, *counts, finish)
        [expected] = self._tokenizer.count_prompts([prompt])
        if counts is None:
            [new] = self._tokenizer.count([text])
            return Generation(text, expected, new, finish)
        if counts[0] > expected and not self._warned:
            self._warned = True
            _log.warning(
                "%s counts %d tokens in a prompt of %d as counted here: the server adds to the prompt, or "
                "generation.server.tokenizer is not that model's, and budgets may not hold",
                *(self._settings.base_url, counts[0], expected),
            )
        return Generation(text, *counts, finish)

    def _request(self, body: dict[str, Any], deadline: float) -> AbstractContextManager[httpx.Response]:
        times = ending_by(deadline, self._settings.timeout_s)
        return self._client.stream("POST", "chat/completions", json=body, extensions=times)

    def _body(self, prompt: str, max_new_tokens: int) -> dict[str, Any]:
        return {
            "model": self._settings.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "seed": self._settings.seed,
            "max_tokens": max_new_tokens,
        }

    def _refuse(self, status: int, content: bytes) -> None:
        """Raise what a status means that is not tried again: the prompt's fault, or the configuration's."""
        said = _message(content, self._key)
        if status in RETRIED:
            raise RowError(f"the server answered with status {status}{said}: ask again later.")
        if status in REFUSED_PROMPT:
            raise RowError(f"the server refused the prompt (status {status}){said}.")
        advice = {
            401: f"set the key in the environment variable {self._settings.key_variable}",
            403: f"the key in {self._settings.key_variable} may not use this model",
            404: f"check generation.server.base_url and the model's name, '{self._settings.model}'",
        }.get(status, "check generation.server.base_url")
        raise ConfigError(f"{self._settings.base_url} answered with status {status}{said}: {advice}.")


def _parts(response: httpx.Response) -> Iterator[bytes]:
    """The body as it comes, bounded in bytes; the request's deadline bounds it in time."""
    size = 0
    for part in response.iter_bytes():
        size += len(part)
        if size > MOST_BYTES:
            raise RowError(f"the server's response is longer than {MOST_BYTES:,} bytes.")
        yield part


def _check_sendable(prompt: str) -> None:
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RowError("the prompt holds half of a character (a lone surrogate): send valid Unicode.") from error


def _lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        yield from lines
    yield rest


def _completion(content: bytes, key: str) -> tuple[str, tuple[int, int] | None, str]:
    """Text, (prompt tokens, new tokens) where the server counts both, and how the answer ended."""
    try:
        answer = json.loads(content)
        choice, usage = answer["choices"][0], answer.get("usage") or {}
        text, ended = choice["message"]["content"] or "", choice.get("finish_reason")
        if not (isinstance(text, str) and isinstance(usage, dict)):
            raise TypeError("content is no text, or usage no object")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise RowError(f"the server's response is no chat completion: {_beginning(content, key)}.") from error
    return _whole(text).strip(), _counts(usage), _finish(ended) or "stop"


def _finish(ended: object) -> str:
    """Why an answer ended, in the two words that we have; empty while it has not."""
    if ended == "content_filter":
        raise RowError("the server's content filter withheld the answer: ask otherwise.")
    return "" if ended is None else "length" if ended == "length" else "stop"


def _counts(usage: Mapping[str, object]) -> tuple[int, int] | None:
    """Prompt and new tokens, where both are there and can be."""
    match usage.get("prompt_tokens"), usage.get("completion_tokens"):
        case (bool(), _) | (_, bool()):  # integers to Python, no count to anyone
            return None
        case int(prompt), int(new) if min(prompt, new) >= 0 and max(prompt, new) < 2**31:
            return prompt, new
    return None


def _whole(text: str) -> str:
    """Half of a character, as JSON can escape it, becomes the replacement character: no file could hold it."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _event(data: bytes, key: str) -> tuple[str, str, tuple[int, int] | None]:
    """Of an event of a stream: its piece of text, why the answer ended, and the counts; each may be missing."""
    try:
        event = json.loads(data)
        choices, usage = event["choices"], event.get("usage") or {}
        if not choices:
            return "", "", _counts(usage)
        piece = _whole(str(choices[0]["delta"].get("content") or ""))
        return piece, _finish(choices[0].get("finish_reason")), _counts(usage)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise RowError(f"the stream holds what is no part of a chat completion: {_beginning(data, key)}.") from error


def _beginning(content: bytes, key: str) -> str:
    """Of what cannot be read, the first bytes, for an error: without the key, which some servers repeat."""
    return repr((content.replace(key.encode(), KEY_SHOWN.encode()) if key else content)[:80])


def _message(content: bytes, key: str) -> str:
    """The server's own words, shortened and without the key, where it sent any."""
    try:
        error = json.loads(content)["error"]
        said = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    shown = said.replace(key, KEY_SHOWN) if key else said
    return f" and said {' '.join(shown.split())[:200]!r}"


def _retry_after(value: str | None) -> float:
    """Seconds that the server asks to wait, given as such or as a date; 0 where it asks nothing."""
    if value is None:
        return 0.0
    try:
        seconds = float(value)
    except ValueError:
        try:
            until = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return 0.0
        seconds = (until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


def _asks(wait_s: float) -> str:
    """What a wait is told as; a number without bound would fill the row."""
    if wait_s > LONGEST_TIME_S:
        return f" and asks to wait more than {LONGEST_TIME_S:,.0f} s"
    return f" and asks to wait {wait_s:,.0f} s" if wait_s else ""


def _what(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return "cannot connect"
    if isinstance(error, httpx.TimeoutException):
        return "it took too long"
    return f"the connection broke ({type(error).__name__})"
