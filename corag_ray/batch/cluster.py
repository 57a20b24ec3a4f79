"""Starts or joins Ray for a batch job, quietly and offline."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from corag_ray.models.torch_setup import OFFLINE


@contextmanager
def ray_cluster() -> Iterator[float]:
    """The CPUs of the cluster: the one that `RAY_ADDRESS` names (as under `ray job submit`), else one for this job.

    A Ray that is already initialised is used and left running.
    """
    ours = not ray.is_initialized()
    if ours:
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its C++ warnings would tear the progress bar
        ray.init(
            address=os.environ.get("RAY_ADDRESS", "local"),
            include_dashboard=False if "RAY_ADDRESS" not in os.environ else None,
            runtime_env={"env_vars": OFFLINE},
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
    ray.data.DataContext.get_current()  # sets up the loggers that the next line quiets
    for name in ("ray.data", "ray.data._internal.execution.streaming_executor", "ray.data._internal.progress"):
        logging.getLogger(name).setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    try:
        yield float(ray.cluster_resources().get("CPU", 0))
    finally:
        if ours:
            ray.shutdown()
