"""The batcher: what waits is merged, bounded, dropped when late or left, and fails alone."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from corag_ray.errors import DeadlineError, OverloadedError, ProtocolError, UnavailableError
from corag_ray.serving import batcher as module
from corag_ray.serving.batcher import Batcher


class Doubling:
    """Doubles numbers, keeps its batches, and waits in a batch until it is let go; 13 cannot be doubled."""

    def __init__(self):
        self.batches, self.free, self.threads = [], threading.Event(), set()

    def __call__(self, items):
        self.batches.append(list(items))
        self.threads.add(threading.get_ident())
        self.free.wait(5)
        if 13 in items:
            raise ValueError("unlucky")
        return [2 * item for item in items]


@pytest.fixture
def doubling():
    return Doubling()


@pytest.fixture
def thread():
    with ThreadPoolExecutor(1) as pool:
        yield pool


def batcher_of(doubling, thread, most=10, most_waiting=100):
    return Batcher(doubling, thread, most=most, most_waiting=most_waiting, name="numbers")


async def started(batcher, item, **more):
    """A task that has submitted its item."""
    task = asyncio.create_task(batcher.submit(item, **more))
    await asyncio.sleep(0)
    return task


async def computing(doubling, batches):
    while len(doubling.batches) < batches:
        await asyncio.sleep(0.001)


def test_what_comes_while_a_batch_computes_is_the_next_batch_and_a_lone_item_waits_for_nobody(doubling, thread):
    async def run():
        batcher = batcher_of(doubling, thread)
        first = await started(batcher, 1)
        await computing(doubling, 1)
        others = [await started(batcher, item) for item in (2, 3, 4)]
        doubling.free.set()
        answers = await asyncio.gather(first, *others)
        return answers, batcher.done

    answers, done = asyncio.run(run())
    assert answers == [2, 4, 6, 8]
    assert doubling.batches == [[1], [2, 3, 4]]
    assert (done.batches, done.weight) == (2, 4)
    assert len(doubling.threads) == 1


def test_batches_are_bounded_by_weight_and_one_item_of_more_goes_alone(doubling, thread):
    doubling.free.set()

    async def run():
        batcher = batcher_of(doubling, thread, most=5)
        weights = {1: 1, 2: 3, 3: 2, 4: 9, 5: 5}
        return await asyncio.gather(*(batcher.submit(item, weight=weight) for item, weight in weights.items()))

    assert asyncio.run(run()) == [2, 4, 6, 8, 10]
    assert doubling.batches == [[1, 2], [3], [4], [5]]


def test_an_item_that_fails_does_so_alone(doubling, thread):
    doubling.free.set()

    async def run():
        batcher = batcher_of(doubling, thread)
        return await asyncio.gather(*(batcher.submit(item) for item in (1, 13, 3)), return_exceptions=True)

    first, failed, last = asyncio.run(run())
    assert (first, last) == (2, 6)
    assert isinstance(failed, ValueError)
    assert doubling.batches == [[1, 13, 3], [1], [13], [3]]


def test_a_left_item_and_a_late_one_are_not_computed_and_do_not_hold_up_others(doubling, thread):
    async def run():
        batcher = batcher_of(doubling, thread)
        first = await started(batcher, 1)
        await computing(doubling, 1)
        left = await started(batcher, 2)
        late = await started(batcher, 3, deadline_s=time.time() - 1)
        fine = await started(batcher, 4, deadline_s=time.time() + 60)
        left.cancel()
        await asyncio.sleep(0)
        doubling.free.set()
        return await asyncio.gather(first, left, late, fine, return_exceptions=True)

    first, left, late, fine = asyncio.run(run())
    assert (first, fine) == (2, 8)
    assert isinstance(left, asyncio.CancelledError)
    assert isinstance(late, DeadlineError)
    assert doubling.batches == [[1], [4]]


def test_more_than_may_wait_is_refused_and_later_let_in_again(doubling, thread):
    async def run():
        batcher = batcher_of(doubling, thread, most_waiting=3)
        first = await started(batcher, 1)
        await computing(doubling, 1)
        waiting = [await started(batcher, 2, weight=2), await started(batcher, 3)]
        with pytest.raises(OverloadedError, match="3 computations are waiting"):
            await batcher.submit(4)
        doubling.free.set()
        await asyncio.gather(first, *waiting)
        return await batcher.submit(4, weight=50)  # what waits for nobody is always let in

    assert asyncio.run(run()) == 8


def test_answers_of_another_number_are_a_defect_of_whoever_computes(thread):
    batcher = Batcher(lambda items: [0], thread, most=10, most_waiting=10, name="numbers")

    async def run():
        return await asyncio.gather(batcher.submit(1), batcher.submit(2), return_exceptions=True)

    assert [type(error) for error in asyncio.run(run())] == [ProtocolError, ProtocolError]


def test_a_cancelled_request_does_not_take_the_worker_with_it(doubling, thread):
    async def run():
        batcher = batcher_of(doubling, thread)
        first = await started(batcher, 1)  # the worker is started in this task
        await computing(doubling, 1)
        second = await started(batcher, 2)
        first.cancel()
        await asyncio.sleep(0)
        doubling.free.set()
        return await second

    assert asyncio.run(run()) == 4


def test_a_batch_that_hangs_makes_the_replica_unhealthy(doubling, thread, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_BATCH_S", 0.01)

    async def run():
        batcher = batcher_of(doubling, thread)
        batcher.check()
        task = await started(batcher, 1)
        await computing(doubling, 1)
        await asyncio.sleep(0.02)
        with pytest.raises(UnavailableError, match="has been computing"):
            batcher.check()
        doubling.free.set()
        await task
        batcher.check()

    asyncio.run(run())
