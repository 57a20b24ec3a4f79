"""Calls to other deployments: bounded in time, tried again where a replica died, cancelled with their caller."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
    TaskCancelledError,
    WorkerCrashedError,
)
from ray.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    RayServeException,
    ReplicaUnavailableError,
)

from corag_ray.errors import CoragError, OverloadedError, UnavailableError

Result = TypeVar("Result")

ATTEMPTS = 4
FIRST_WAIT_S = 0.1
"""Doubled from one attempt to the next: meanwhile the router learns who has died."""
LOST = (
    RayActorError,
    WorkerCrashedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    ReplicaUnavailableError,
)
"""What a call ends with whose replica died under it; Ray Serve itself does not try it again."""

_log = logging.getLogger(__name__)


async def call(ask: Callable[[], Any], what: str, until_s: float) -> Any:
    """The answer of an idempotent call, asked for again where the replica that had it died.

    Args:
        ask: makes the call anew and gives its awaitable response.
        what: the part of the service that is asked, for errors.
        until_s: a moment of `time.time`; a call that is not answered by then is cancelled.

    Raises:
        UnavailableError: not in time, or its replicas kept dying, or there are none.
        OverloadedError: its queue is full.
    """
    problem = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            await asyncio.sleep(FIRST_WAIT_S * 2 ** (attempt - 1))
        response = ask()
        try:
            async with asyncio.timeout(max(0.0, until_s - time.time())) as limit:
                return await response
        except TimeoutError as error:
            if not limit.expired():
                raise  # the callee's own
            response.cancel()
            raise UnavailableError(f"{what} did not answer in time.") from error
        except asyncio.CancelledError:
            response.cancel()
            raise
        except TaskCancelledError as error:  # Ray Serve cancels what a request called, and only then the request
            raise asyncio.CancelledError from error
        except Exception as error:
            if not is_lost(error):
                raise told(error, what) from error
            problem = type(error).__name__
            _log.warning("%s lost a replica (%s), try %d of %d", what, problem, attempt + 1, ATTEMPTS)
    raise UnavailableError(f"{what} lost its replica {ATTEMPTS} times in a row ({problem}).")


async def stream(response: Any, what: str) -> AsyncGenerator[Any, None]:
    """The items of a streaming call, which is cancelled when its reader leaves; it is not tried again.

    Raises:
        UnavailableError: its replica died.
        OverloadedError: its queue is full.
    """
    try:
        async for item in response:
            yield item
    except (asyncio.CancelledError, GeneratorExit):
        response.cancel()
        raise
    except TaskCancelledError as error:
        raise asyncio.CancelledError from error
    except Exception as error:
        if is_lost(error):
            raise UnavailableError(f"{what} lost the replica that was answering.") from error
        raise told(error, what) from error


async def all_of(asks: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """The results in order; the first error cancels the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask) for ask in asks]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def is_lost(error: BaseException) -> bool:
    """Whether an error means that a replica died, here or further down."""
    return isinstance(error, LOST) or isinstance(getattr(error, "cause", None), LOST)


def told(error: Exception, what: str) -> Exception:
    """The error in our own kinds, where it has one; a callee's error comes without Ray's frames around it."""
    if isinstance(error, BackPressureError):
        return OverloadedError(f"{what} has too much waiting: ask again in a moment.")
    if isinstance(error, DeploymentUnavailableError):
        return UnavailableError(f"{what} could not be started.")
    cause = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(cause, CoragError):
        return cause
    if isinstance(error, RayServeException) and not isinstance(error, RayTaskError):
        return UnavailableError(f"{what} is out of reach ({type(error).__name__}).")
    return error
