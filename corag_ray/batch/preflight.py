"""Refuses a plan that Ray could only wait for: the sum is shown before anything starts."""

from __future__ import annotations

import logging
import math

from corag_ray.config import Plan
from corag_ray.errors import ConfigError

logger = logging.getLogger(__name__)

FREE_CPUS = 1
"""Kept for Ray Data's own tasks: a pipeline whose actors hold every CPU waits for ever (ray#44687)."""


def check_cpus(stages: dict[str, int], plan: Plan, cluster_cpus: float) -> None:
    """Pass when the cluster can run one actor pool a stage at the same time.

    Args:
        stages: actors of each stage, by stage name.
        plan: gives the CPUs that one actor asks for.
        cluster_cpus: what the cluster has.

    Raises:
        ConfigError: it cannot; the message shows the sum.
    """
    parts = [f"{count} {name} x {plan.cpus_an_actor:g}" for name, count in stages.items()]
    needed = sum(stages.values()) * plan.cpus_an_actor + FREE_CPUS
    total = f"{' + '.join(parts)} + {FREE_CPUS} for Ray Data's tasks = {needed:g} CPUs"
    if needed > cluster_cpus and not math.isclose(needed, cluster_cpus):
        raise ConfigError(
            f"this plan would hang: {total}, and the cluster has {cluster_cpus:g}; "
            "lower plan.cpus_an_actor or the numbers of actors."
        )
    logger.info("%s, of %g", total, cluster_cpus)
