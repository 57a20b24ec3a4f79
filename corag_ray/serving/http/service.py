"""What the HTTP routes ask for: the deployments in a server, fakes in tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from corag_ray.serving.messages import Asked, Ranked, Retrieved, Selected, Stage
from corag_ray.serving.settings import ServingSettings
from corag_ray.types import Generation


class Service(Protocol):
    """The work behind the routes; what it raises, `errors` maps to an answer."""

    async def select(self, asked: Asked) -> Selected:
        """A request's selection and prompt."""
        ...

    def stages(self, asked: Asked) -> AsyncGenerator[Stage | Selected, None]:
        """The stages as they are done, and last the selection."""
        ...

    async def generate(self, prompt: str, max_new_tokens: int, deadline_s: float) -> Generation:
        """The whole answer to a prompt."""
        ...

    def stream(self, prompt: str, max_new_tokens: int, deadline_s: float) -> AsyncGenerator[str | Generation, None]:
        """The answer in pieces, and last the whole of it."""
        ...

    async def rerank(self, asked: Asked, combine: bool) -> Ranked:
        """The request's documents, ranked."""
        ...

    async def search(self, text: str, num_candidates: int, deadline_s: float) -> Retrieved:
        """The first stage alone."""
        ...

    async def keep(self, request_id: str, text: bytes) -> None:
        """Keep a request's explanation, a JSON text, for a while."""
        ...

    async def explanation(self, request_id: str) -> bytes | None:
        """A request's explanation, if it is still kept."""
        ...

    async def ready(self) -> dict[str, bool]:
        """By part of the service, whether it answers."""
        ...


@dataclass(frozen=True, slots=True)
class Edge:
    """What routes are made of: the work, and the settings that bound it."""

    service: Service
    settings: ServingSettings
