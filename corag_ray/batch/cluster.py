"""Starts or joins Ray for a batch job, quietly and offline."""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import RayError

from corag_ray.batch.progress import stages
from corag_ray.errors import CoragError
from corag_ray.models.torch_setup import OFFLINE, SLEEPING_THREADS

MAX_RESTARTS = 2
"""Of an actor, and tries of a group again after its actor died: Ray Data's own default is for ever."""
ACTOR_OPTIONS = {"max_restarts": MAX_RESTARTS, "max_task_retries": MAX_RESTARTS}
BUSY = "; probably the machine is busy or short of memory: end other work, or try again."


@contextmanager
def ray_cluster(check: Callable[[float], None]) -> Iterator[None]:
    """The cluster that `RAY_ADDRESS` names (as under `ray job submit`), else a Ray of this job's own.

    A Ray that is already initialised is used and left running.

    Args:
        check: told the cluster's CPUs, it may raise to refuse them; before a Ray of one's own is started, where they
            are known by then.
    """
    ours = not ray.is_initialized()
    alone = ours and not os.environ.get("RAY_ADDRESS")
    if alone:
        check(_cpus_here())
    if ours:
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # Ray says in one line that this is set; without it every run has a line that reads as an error and is none.
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
        _start_ray(os.environ.get("RAY_ADDRESS"))
    ray.data.DataContext.get_current()  # sets up the loggers that the next line quiets
    for name in ("ray.data", "ray.data._internal.execution.streaming_executor", "ray.data._internal.progress"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*ray_remote_args")  # no other way to bound restarts in Ray 2.60
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    try:
        if not alone:
            check(float(ray.cluster_resources().get("CPU", 0)))
        stages.info("loading models, first step")  # what an actor does before anything is told
        yield
    except RayError as error:
        raise _in_one_sentence(error) from error
    finally:
        if ours:
            ray.shutdown()


def as_done(data: ray.data.Dataset) -> Iterator[dict[str, Any]]:
    """The output blocks as columns, each as soon as it is there.

    With prefetching, Ray Data's default, a finished block waits for the next one, and a killed run loses it.
    """
    yield from data.iter_batches(batch_size=None, batch_format="numpy", prefetch_batches=0)


def _cpus_here() -> int:
    """What a Ray for this job is given."""
    return max(2, os.cpu_count() or 1)


def _start_ray(address: str | None) -> None:
    stages.info("joining Ray" if address else "starting Ray")
    try:
        ray.init(
            address=address or "local",
            include_dashboard=None if address else False,
            num_cpus=None if address else _cpus_here(),
            runtime_env={"env_vars": OFFLINE | SLEEPING_THREADS},
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
    except Exception as error:  # Ray raises the bare class when its node does not come up in time
        where = f"no Ray cluster was reached at RAY_ADDRESS={address}" if address else "Ray did not start"
        told = (str(error).strip() or "no message").splitlines()[0][:200]
        busy = not address and "timed out" in told
        raise CoragError(f"{where}: {told.rstrip('.') + BUSY if busy else told}") from error


def _in_one_sentence(error: BaseException) -> CoragError:
    """What went wrong in an actor, without Ray's frames: our own sentence if there is one, else the innermost cause."""
    chain = [error]
    while (inner := getattr(chain[-1], "cause", None) or chain[-1].__cause__) is not None:
        chain.append(inner)
    for cause in reversed(chain):
        if isinstance(cause, CoragError):
            return cause
        # An actor that dies in its constructor leaves its error as text alone.
        if ours := re.search(r"corag_ray\.errors\.(\w+): (.+)", str(cause)):
            kinds = {kind.__name__: kind for kind in CoragError.__subclasses__()}
            return kinds.get(ours[1], CoragError)(ours[2])
    telling = next((c for c in reversed(chain) if str(c).strip() or not type(c).__module__.startswith("ray")), error)
    return CoragError(
        f"a worker failed with {type(telling).__name__}: {(str(telling).strip() or 'no message').splitlines()[-1]}"
    )
