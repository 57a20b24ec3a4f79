"""The ingress's replicas: the HTTP application over the deployments behind it."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import FastAPI
from ray import serve

from corag_ray.errors import CoragError
from corag_ray.serving.calls import all_of, stream
from corag_ray.serving.http.app import make_app
from corag_ray.serving.http.gate import read_keys
from corag_ray.serving.messages import Asked, Ranked, Retrieved, Selected, Stage
from corag_ray.serving.pools import bounded_call
from corag_ray.serving.settings import ServingSettings
from corag_ray.types import Generation

GRACE_S = 5.0
"""After a request's deadline, for the answer to what was found by then."""
PROBE_S = 10.0

_log = logging.getLogger(__name__)


@serve.ingress()
class IngressReplica:
    """Answers HTTP."""

    def __init__(self, settings: ServingSettings, driver: Any, generator: Any | None, explanations: Any) -> None:
        """`generator` is None where nothing is to be generated."""
        self._settings = settings
        self._service = DeployedService(driver, generator, explanations)

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Called by Ray Serve once the replica is made; keys are read here, so that no configuration holds them."""
        return make_app(self._service, self._settings, read_keys(self._settings.http), tell_id=False)


class DeployedService:
    """See `http.service.Service`: each method is one call of a deployment."""

    def __init__(self, driver: Any, generator: Any | None, explanations: Any) -> None:
        """Take the deployments."""
        self._driver = driver
        self._generator = generator
        self._explanations = explanations

    async def select(self, asked: Asked) -> Selected:
        """The selection; a driver that dies is asked again, as searching changes nothing."""
        selected: Selected = await self._ask_driver(lambda: self._driver.select.remote(asked), asked.deadline_s)
        return selected

    async def stages(self, asked: Asked) -> AsyncGenerator[Stage | Selected, None]:
        """The stages, as the driver tells them."""
        items = stream(self._driver.options(stream=True).stages.remote(asked), "driver")
        async with aclosing(items):
            async for item in items:
                yield item

    async def generate(self, prompt: str, max_new_tokens: int, deadline_s: float) -> Generation:
        """The whole answer."""
        handle = self._writer()
        written: Generation = await bounded_call(
            lambda: handle.generate.remote(prompt, max_new_tokens, deadline_s),
            "generator",
            float("inf"),
            deadline_s + GRACE_S,
        )
        return written

    async def stream(
        self, prompt: str, max_new_tokens: int, deadline_s: float
    ) -> AsyncGenerator[str | Generation, None]:
        """The answer in pieces."""
        handle = self._writer().options(stream=True)
        items = stream(handle.stream.remote(prompt, max_new_tokens, deadline_s), "generator")
        async with aclosing(items):
            async for item in items:
                yield item

    async def rerank(self, asked: Asked, combine: bool) -> Ranked:
        """The ranking."""
        ranked: Ranked = await self._ask_driver(lambda: self._driver.rerank.remote(asked, combine), asked.deadline_s)
        return ranked

    async def search(self, text: str, num_candidates: int, deadline_s: float) -> Retrieved:
        """The first stage's hits."""
        found: Retrieved = await self._ask_driver(
            lambda: self._driver.search.remote(text, num_candidates, deadline_s), deadline_s
        )
        return found

    async def keep(self, request_id: str, text: bytes) -> None:
        """Keep an explanation; a store that does not answer costs no request."""
        try:
            await self._ask_store(lambda: self._explanations.put.remote(request_id, text))
        except CoragError as error:
            _log.warning("the explanation of %s was not kept: %s", request_id, error)

    async def explanation(self, request_id: str) -> bytes | None:
        """An explanation, if it is still kept."""
        text: bytes | None = await self._ask_store(lambda: self._explanations.get.remote(request_id))
        return text

    async def ready(self) -> dict[str, bool]:
        """The driver's view, and whether the generator answers."""
        parts = {"driver": self._driver} | ({"generator": self._generator} if self._generator else {})
        seen = await all_of(self._probe(name, handle) for name, handle in parts.items())
        return {name: up for one in seen for name, up in one.items()}

    async def _probe(self, name: str, handle: Any) -> dict[str, bool]:
        try:
            answer = await bounded_call(lambda: handle.ready.remote(), name, PROBE_S, float("inf"))
        except CoragError:
            return {name: False}
        return {name: True} | (answer if isinstance(answer, dict) else {})

    async def _ask_store(self, ask: Any) -> Any:
        return await bounded_call(ask, "explanations", PROBE_S, float("inf"))

    async def _ask_driver(self, ask: Any, deadline_s: float) -> Any:
        return await bounded_call(ask, "driver", float("inf"), deadline_s + GRACE_S)

    def _writer(self) -> Any:
        if self._generator is None:
            raise CoragError("nothing is generated here.")
        return self._generator
