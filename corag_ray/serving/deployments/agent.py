"""The configuration agent's replicas."""

from __future__ import annotations

from corag_ray.models.agent import Agent, Configuration, FixedAgent
from corag_ray.serving.messages import Embedded


class AgentReplica:
    """Holds the agent, whose answer costs so little that it is given at once."""

    def __init__(self, configuration: Configuration) -> None:
        """Answer with this configuration."""
        self._agent: Agent = FixedAgent(configuration)

    async def configure(self, text: str, embedded: Embedded) -> Configuration:
        """What a question is to be answered with."""
        return self._agent.configure(text, embedded.vector)

    def ready(self) -> bool:
        """That it answers is the answer."""
        return True
