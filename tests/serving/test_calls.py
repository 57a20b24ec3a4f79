"""Calls: a dead replica's is made again, a late or left one is cancelled, and errors come in our own kinds."""

import asyncio
import time

import pytest
from ray.exceptions import ActorDiedError, RayTaskError, TaskCancelledError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from corag_ray.errors import ConfigError, OverloadedError, ProtocolError, UnavailableError
from corag_ray.serving import calls
from corag_ray.serving.calls import ATTEMPTS, all_of, call, stream


class Response:
    """What a handle gives: awaitable, and can be cancelled."""

    def __init__(self, outcome):
        self.outcome, self.cancelled = outcome, False

    def cancel(self):
        self.cancelled = True

    def __await__(self):
        return self._result().__await__()

    async def _result(self):
        if isinstance(self.outcome, float):
            await asyncio.sleep(self.outcome)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Callee:
    """Gives one outcome after another."""

    def __init__(self, *outcomes):
        self.outcomes, self.responses = list(outcomes), []

    def __call__(self):
        self.responses.append(Response(self.outcomes.pop(0)))
        return self.responses[-1]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(calls, "FIRST_WAIT_S", 0.001)


def made(callee, until_s=float("inf")):
    return asyncio.run(call(callee, "'bge'", until_s))


def wrapped(error):
    """As Ray hands on what a replica raised."""
    return RayTaskError("score", "Traceback ...", error).as_instanceof_cause()


def test_a_call_whose_replica_died_is_made_again():
    callee = Callee(ActorDiedError(), wrapped(ActorDiedError()), "scores")
    assert made(callee) == "scores"
    assert len(callee.responses) == 3


def test_a_pool_whose_replicas_keep_dying_is_out_of_reach():
    callee = Callee(*[ActorDiedError()] * (ATTEMPTS + 1))
    with pytest.raises(UnavailableError, match=f"'bge' lost its replica {ATTEMPTS} times in a row"):
        made(callee)
    assert len(callee.responses) == ATTEMPTS


def test_a_call_that_is_not_answered_in_time_is_cancelled():
    callee = Callee(5.0)
    with pytest.raises(UnavailableError, match="'bge' did not answer in time"):
        made(callee, time.time() + 0.02)
    assert callee.responses[0].cancelled


def test_a_callees_own_timeout_is_not_taken_for_ours():
    callee = Callee(TimeoutError("of a socket"))
    with pytest.raises(TimeoutError, match="of a socket"):
        made(callee, time.time() + 60)


def test_who_leaves_takes_the_call_along():
    callee = Callee(5.0)

    async def left():
        task = asyncio.create_task(call(callee, "'bge'", float("inf")))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(left())
    assert callee.responses[0].cancelled


def test_a_call_that_serve_cancelled_ends_as_a_cancelled_one():
    with pytest.raises(asyncio.CancelledError):
        made(Callee(TaskCancelledError()))


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (wrapped(ConfigError("no such thing.")), ConfigError, "no such thing."),
        (wrapped(OverloadedError("full.")), OverloadedError, "full."),
        (wrapped(ProtocolError("3 for 4.")), ProtocolError, "3 for 4."),
        (BackPressureError(3, 2), OverloadedError, "'bge' has too much waiting: ask again in a moment."),
        (DeploymentUnavailableError("bge"), UnavailableError, "'bge' could not be started."),
        (wrapped(ValueError("a defect")), ValueError, "a defect"),
    ],
)
def test_errors_come_in_our_own_kinds_without_rays_frames(error, kind, message):
    callee = Callee(error)
    with pytest.raises(kind) as caught:
        made(callee)
    assert len(callee.responses) == 1  # none of them goes away by asking again
    if kind is not ValueError:
        assert type(caught.value) is kind
        assert str(caught.value) == message


class Pieces(Response):
    """A streaming response."""

    def __aiter__(self):
        return self._pieces()

    async def _pieces(self):
        for piece in self.outcome:
            if isinstance(piece, Exception):
                raise piece
            yield piece


def test_a_stream_hands_on_its_items_and_is_cancelled_when_its_reader_leaves():
    response = Pieces(["a", "b", "c"])

    async def read_two():
        pieces = stream(response, "generator")
        got = [await anext(pieces), await anext(pieces)]
        await pieces.aclose()
        return got

    assert asyncio.run(read_two()) == ["a", "b"]
    assert response.cancelled


def test_a_stream_whose_replica_died_says_so():
    async def read():
        return [piece async for piece in stream(Pieces(["a", ActorDiedError()]), "generator")]

    with pytest.raises(UnavailableError, match="generator lost the replica"):
        asyncio.run(read())


def test_of_several_the_first_error_is_raised_as_it_is_and_the_others_are_cancelled():
    ended = []

    async def slow():
        try:
            await asyncio.sleep(5)
        finally:
            ended.append("slow")

    async def failing():
        await asyncio.sleep(0)
        raise OverloadedError("full.")

    with pytest.raises(OverloadedError, match="full"):
        asyncio.run(all_of([slow(), failing()]))
    assert ended == ["slow"]
