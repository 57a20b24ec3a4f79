"""Starts or joins Ray for a batch job, quietly and offline."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import ray
from ray.exceptions import RayError

from corag_ray.errors import CoragError
from corag_ray.models.torch_setup import OFFLINE

MAX_RESTARTS = 2
"""Of an actor, and tries of a group again after its actor died: Ray Data's own default is for ever."""
ACTOR_OPTIONS = {"max_restarts": MAX_RESTARTS, "max_task_retries": MAX_RESTARTS}

WORKER_THREADS = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Idle threads sleep: where actors share cores, spinning ones keep the others from working (measured: 2 to 5 times)."""

Advance = Callable[[int, int], None]
"""Told (done, in all) whenever a unit of work is done."""


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
            num_cpus=None if "RAY_ADDRESS" in os.environ else max(2, os.cpu_count() or 1),
            runtime_env={"env_vars": OFFLINE | WORKER_THREADS},
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
    ray.data.DataContext.get_current()  # sets up the loggers that the next line quiets
    for name in ("ray.data", "ray.data._internal.execution.streaming_executor", "ray.data._internal.progress"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*ray_remote_args")  # no other way to bound restarts in Ray 2.60
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    try:
        yield float(ray.cluster_resources().get("CPU", 0))
    except RayError as error:
        raise _in_one_sentence(error) from error
    finally:
        if ours:
            ray.shutdown()


def _in_one_sentence(error: BaseException) -> CoragError:
    """What went wrong in an actor, without Ray's frames: the innermost cause, which is ours if it can be."""
    cause: BaseException = error
    while (inner := getattr(cause, "cause", None) or cause.__cause__) is not None:
        cause = inner
    if isinstance(cause, CoragError):
        return cause
    first_line = str(cause).strip().splitlines()[-1] if str(cause).strip() else "no message"
    return CoragError(f"a worker failed with {type(cause).__name__}: {first_line}")
