"""The configuration agent: which method, reranker and search parameters a question is answered with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from corag_ray.models.protocols import FloatArray


@dataclass(frozen=True, slots=True)
class Configuration:
    """What an agent chose for a question: a method of the run's configuration, and what of it is to be otherwise.

    `reranker` is None where the method's own is meant; `changes` are of the parameters of the method's strategy.
    """

    method: str
    reranker: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


class Agent(Protocol):
    """Chooses by the question alone: nothing has been retrieved yet."""

    def configure(self, question: str, vector: FloatArray) -> Configuration:
        """The configuration for a question with its unit vector, [dim]."""
        ...


class FixedAgent:
    """Chooses the same for every question."""

    def __init__(self, configuration: Configuration) -> None:
        """Take what is always chosen."""
        self._configuration = configuration

    def configure(self, question: str, vector: FloatArray) -> Configuration:
        """See `Agent`."""
        return self._configuration
