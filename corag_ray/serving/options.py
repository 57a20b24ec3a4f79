"""From a deployment's scale to what Ray Serve is told, the environment of its processes included."""

from __future__ import annotations

from typing import Any

from corag_ray.config import Config
from corag_ray.models.torch_setup import OFFLINE, SLEEPING_THREADS
from corag_ray.serving.settings import Scale

CONSTRUCTOR_TRIES = 3
"""Of a replica that cannot be made: Ray Serve's default of 20 loops for minutes over a wrong path."""
SHUTDOWN_S = 10.0
"""Given to the requests of a replica that is to go, before it goes all the same."""


def options_of(name: str, scale: Scale) -> dict[str, Any]:
    """The options of a deployment.

    Queues before a replica are not bounded here: an expansion's parts are a burst, which must not trip a limit of ours.
    What is let in is bounded at the edge, and what may wait for a model is bounded beside it.
    """
    actor = {
        "num_cpus": scale.num_cpus,
        "num_gpus": scale.num_gpus,
        "runtime_env": {"env_vars": OFFLINE | SLEEPING_THREADS},
    }
    replicas: dict[str, Any] = {"num_replicas": scale.min_replicas}
    if scale.min_replicas < scale.max_replicas:
        replicas = {
            "autoscaling_config": {
                "min_replicas": scale.min_replicas,
                "max_replicas": scale.max_replicas,
                "target_ongoing_requests": scale.target_ongoing,
                "look_back_period_s": scale.look_back_s,
                "upscale_delay_s": scale.upscale_delay_s,
                "downscale_delay_s": scale.downscale_delay_s,
            }
        }
    return {
        "name": name,
        "ray_actor_options": actor,
        "max_ongoing_requests": scale.max_ongoing,
        "max_constructor_retry_count": CONSTRUCTOR_TRIES,
        "graceful_shutdown_timeout_s": SHUTDOWN_S,
        **replicas,
    }


def with_threads(config: Config, scale: Scale) -> Config:
    """The configuration whose processes of torch use the scale's threads."""
    if scale.threads is None:
        return config
    return config.model_copy(update={"plan": config.plan.model_copy(update={"threads": scale.threads})})
