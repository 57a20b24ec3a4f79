"""Merges what waits into batches: while one is computed in a thread, the next one gathers.

Ray Serve's `@serve.batch` is not used: one item's error fails its whole batch there, an item larger than the batch is
an error, cancelled calls have left it stuck, and it does not run in Serve's local testing mode.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from corag_ray.errors import DeadlineError, OverloadedError, ProtocolError, UnavailableError
from corag_ray.serving.metrics import WAITING

Item = TypeVar("Item")
Answer = TypeVar("Answer")

LONGEST_BATCH_S = 120.0
"""A batch that takes longer is taken to hang."""


@dataclass(slots=True)
class _Waiting(Generic[Item, Answer]):
    item: Item
    weight: int
    deadline_s: float
    answer: asyncio.Future[Answer] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def wanted(self) -> bool:
        """Whether somebody still waits for it."""
        return not self.answer.done()


@dataclass(slots=True)
class Batched:
    """What a batcher has computed so far: batches, and the weight of the items in them."""

    batches: int = 0
    weight: int = 0


class Batcher(Generic[Item, Answer]):
    """Computes items in batches, one batch at a time; to be used from one event loop.

    Nothing waits for company: a batch is what is there when the one before is done, first come first. Items whose
    waiter has left are dropped, and so are those past their deadline. An item that fails does so alone.
    """

    def __init__(
        self,
        compute: Callable[[list[Item]], Sequence[Answer]],
        thread: Executor,
        *,
        most: int,
        most_waiting: int,
        name: str,
    ) -> None:
        """Set up; nothing is computed yet.

        Args:
            compute: items to their answers, in order; runs in `thread`.
            thread: where; batchers that share a model share the one worker of it.
            most: weight of a batch at most; one item of more is a batch of its own.
            most_waiting: weight that may wait before further items are refused.
            name: of the queue, for the metric of what waits in it.
        """
        self._compute = compute
        self._thread = thread
        self._most = most
        self._most_waiting = most_waiting
        self._name = name
        self._queue: deque[_Waiting[Item, Answer]] = deque()
        self._weight_waiting = 0
        self._worker: asyncio.Task[None] | None = None
        self._started_s: float | None = None
        self.done = Batched()

    async def submit(self, item: Item, *, weight: int = 1, deadline_s: float = float("inf")) -> Answer:
        """The item's answer; `deadline_s` is a moment of `time.time`, which all machines share.

        Raises:
            OverloadedError: too much is waiting.
            DeadlineError: its turn came too late.
        """
        if self._weight_waiting + weight > self._most_waiting and self._queue:
            raise OverloadedError(f"{self._weight_waiting} computations are waiting already: ask again in a moment.")
        waiting: _Waiting[Item, Answer] = _Waiting(item, weight, deadline_s)
        self._queue.append(waiting)
        self._weighs(weight)
        if self._worker is None or self._worker.done():
            # In a context of its own: the worker goes on for others when the request that started it has ended.
            self._worker = asyncio.create_task(self._work(), context=contextvars.Context())
        return await waiting.answer

    def check(self) -> None:
        """Refuse to be called healthy while one batch takes for ever.

        Raises:
            UnavailableError: it does.
        """
        if self._started_s is not None and time.monotonic() - self._started_s > LONGEST_BATCH_S:
            raise UnavailableError(f"a batch has been computing for more than {LONGEST_BATCH_S:.0f} s.")

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue:
            batch = self._next_batch()
            if not batch:
                continue
            self.done.batches += 1
            self.done.weight += sum(waiting.weight for waiting in batch)
            self._started_s = time.monotonic()
            try:
                answers = await loop.run_in_executor(self._thread, self._computed, [one.item for one in batch])
            except BaseException as error:  # the thread is gone: nobody may wait for it
                for waiting in batch:
                    if waiting.wanted:
                        waiting.answer.set_exception(UnavailableError(f"the batch was given up: {error}."))
                raise
            finally:
                self._started_s = None
            for waiting, answer in zip(batch, answers, strict=True):
                if waiting.wanted:
                    _settle(waiting.answer, answer)

    def _weighs(self, more: int) -> None:
        self._weight_waiting += more
        WAITING.set(self._weight_waiting, queue=self._name)

    def _next_batch(self) -> list[_Waiting[Item, Answer]]:
        batch: list[_Waiting[Item, Answer]] = []
        weight = 0
        while self._queue and (not batch or weight + self._queue[0].weight <= self._most):
            waiting = self._queue.popleft()
            self._weighs(-waiting.weight)
            if waiting.wanted and time.time() >= waiting.deadline_s:
                waiting.answer.set_exception(DeadlineError("the request's time was up before its turn came."))
            if waiting.wanted:
                batch.append(waiting)
                weight += waiting.weight
        return batch

    def _computed(self, items: list[Item]) -> list[Answer | Exception]:
        """Answers or errors by item; where a batch of several fails, each item is tried alone."""
        try:
            answers = list(self._compute(items))
        except Exception as error:
            return [error] if len(items) == 1 else [one for item in items for one in self._computed([item])]
        if len(answers) != len(items):
            return [ProtocolError(f"{len(items)} items gave {len(answers)} answers.")] * len(items)
        return list(answers)


def _settle(future: asyncio.Future[Answer], answer: Answer | Exception) -> None:
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
