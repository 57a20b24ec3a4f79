"""A language model behind any server that speaks OpenAI's chat completions (vLLM, llama.cpp, Ollama, and others)."""

from __future__ import annotations

import json
import logging
import os
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx

from corag_ray.errors import ConfigError, CoragError, RowError
from corag_ray.types import Generation

MOST_BYTES = 4_000_000
"""Of one response, at most: a server is not trusted to end."""
LONGEST_WAIT_S = 30.0
RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
REFUSED_PROMPT = frozenset({400, 413, 422})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the server is and how patiently it is asked.

    `key_variable` names the environment variable that holds the key; without that variable no key is sent. `timeout_s`
    bounds every read, `attempts` the tries of one prompt, `concurrency` the prompts under way.
    """

    base_url: str
    model: str
    key_variable: str = "OPENAI_API_KEY"
    timeout_s: float = 120.0
    attempts: int = 5
    concurrency: int = 8
    first_wait_s: float = 0.5
    seed: int = 0


class OpenAIGenerator:
    """Greedy answers (temperature 0 and a fixed seed: what a server makes of them is its own affair)."""

    def __init__(self, settings: ServerSettings, transport: httpx.BaseTransport | None = None) -> None:
        """Open a connection pool; nothing is sent yet.

        Raises:
            ConfigError: `base_url` is no http address.
        """
        if not settings.base_url.startswith(("http://", "https://")):
            raise ConfigError(
                f"generation.server.base_url must begin with http:// or https://, not {settings.base_url!r}."
            )
        self.name = settings.model
        self._settings = settings
        self._key = key = os.environ.get(settings.key_variable, "").strip()
        self._client = httpx.Client(
            base_url=settings.base_url.rstrip("/") + "/",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(settings.timeout_s, connect=min(10.0, settings.timeout_s)),
            limits=httpx.Limits(max_connections=settings.concurrency),
            follow_redirects=False,  # the key must not be sent elsewhere
            transport=transport,
        )

    def generate(self, prompts: Sequence[str], max_new_tokens: int) -> list[Generation | RowError]:
        """One answer a prompt, in order; a prompt that the server refuses or keeps failing on has its error instead.

        Raises:
            ConfigError: the server refuses the key, or knows no such model or address.
            CoragError: the server cannot be reached.
        """
        with ThreadPoolExecutor(self._settings.concurrency) as pool:
            return list(pool.map(lambda prompt: self._one(prompt, max_new_tokens), prompts))

    def stream(self, prompt: str, max_new_tokens: int) -> Iterator[str]:
        """The answer in pieces as the server sends them; not retried once a piece has come.

        Raises:
            RowError: the stream broke or was refused.
        """
        body = self._body(prompt, max_new_tokens) | {"stream": True}
        try:
            with self._client.stream("POST", "chat/completions", json=body) as response:
                if response.status_code != 200:
                    self._refuse(response.status_code, _bounded(response))
                for line in response.iter_lines():
                    data = line.removeprefix("data:").strip()
                    if not line.startswith("data:") or not data:
                        continue
                    if data == "[DONE]":
                        return
                    piece = _delta(data)
                    if piece:
                        yield piece
        except httpx.HTTPError as error:
            raise RowError(f"the stream from {self._settings.base_url} broke: {_what(error)}.") from error
        raise RowError(f"the stream from {self._settings.base_url} ended before it was done.")

    def _one(self, prompt: str, max_new_tokens: int) -> Generation | RowError:
        problem = ""
        for attempt in range(self._settings.attempts):
            wait = 0.0
            try:
                with self._client.stream(
                    "POST", "chat/completions", json=self._body(prompt, max_new_tokens)
                ) as response:
                    content = _bounded(response)
                    if response.status_code == 200:
                        return _generation(content)
                    if response.status_code not in RETRIED:
                        self._refuse(response.status_code, content)
                    problem = f"it answered with status {response.status_code}"
                    wait = _retry_after(response.headers.get("retry-after"))
            except RowError as error:
                return error
            except httpx.HTTPError as error:
                problem = _what(error)
            if attempt + 1 < self._settings.attempts:
                backoff = self._settings.first_wait_s * 2**attempt * random.uniform(0.5, 1.0)
                time.sleep(min(LONGEST_WAIT_S, max(wait, backoff)))
                _log.info("try %d at %s: %s", attempt + 2, self._settings.base_url, problem)
        message = f"no answer from {self._settings.base_url} in {self._settings.attempts} tries: {problem}."
        if problem.startswith("cannot connect"):
            raise CoragError(f"{message} Start the server or mend generation.server.base_url.")
        return RowError(message)

    def _body(self, prompt: str, max_new_tokens: int) -> dict[str, Any]:
        return {
            "model": self._settings.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "seed": self._settings.seed,
            "max_tokens": max_new_tokens,
        }

    def _refuse(self, status: int, content: bytes) -> None:
        """Raise what a status that no retry mends means: the prompt's fault, or the configuration's."""
        said = _message(content)
        said = said.replace(self._key, "(the key)") if self._key else said  # some servers repeat it
        if status in REFUSED_PROMPT:
            raise RowError(f"the server refused the prompt (status {status}){said}.")
        advice = {
            401: f"set the key in the environment variable {self._settings.key_variable}",
            403: f"the key in {self._settings.key_variable} may not use this model",
            404: f"check generation.server.base_url and the model's name, '{self._settings.model}'",
        }.get(status, "check generation.server.base_url")
        raise ConfigError(f"{self._settings.base_url} answered with status {status}{said}: {advice}.")


def _bounded(response: httpx.Response) -> bytes:
    content = bytearray()
    for part in response.iter_bytes():
        content += part
        if len(content) > MOST_BYTES:
            raise RowError(f"the server's response is longer than {MOST_BYTES:,} bytes.")
    return bytes(content)


def _generation(content: bytes) -> Generation:
    try:
        answer = json.loads(content)
        choice, usage = answer["choices"][0], answer.get("usage") or {}
        text = choice["message"]["content"] or ""
        if not isinstance(text, str):
            raise TypeError("content is no text")
        finish = "length" if choice.get("finish_reason") == "length" else "stop"
        counts = int(usage.get("prompt_tokens", 0)), int(usage.get("completion_tokens", 0))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise RowError(f"the server's response is no chat completion: {content[:80]!r}.") from error
    return Generation(text.strip(), *counts, finish)


def _delta(data: str) -> str:
    try:
        choices = json.loads(data)["choices"]
        return str(choices[0]["delta"].get("content") or "") if choices else ""
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise RowError(f"the stream holds what is no part of a chat completion: {data[:80]!r}.") from error


def _message(content: bytes) -> str:
    """The server's own words, shortened, where it sent any."""
    try:
        error = json.loads(content)["error"]
        said = error["message"] if isinstance(error, dict) else error
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return f" and said {' '.join(str(said).split())[:200]!r}"


def _retry_after(value: str | None) -> float:
    """Seconds that the server asks to wait; 0 for none or a date."""
    try:
        return max(0.0, float(value or 0))
    except ValueError:
        return 0.0


def _what(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return "cannot connect"
    if isinstance(error, httpx.TimeoutException):
        return "it took too long"
    return f"the connection broke ({type(error).__name__})"
