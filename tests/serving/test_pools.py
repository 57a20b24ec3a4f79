"""Pools: an expansion is split over the replicas that are free, and comes back in order."""

import asyncio
import time

import numpy as np
import pytest

from corag_ray.errors import DeadlineError, UnavailableError
from corag_ray.serving.merged_scorer import Scored
from corag_ray.serving.messages import Query
from corag_ray.serving.pools import LEAST_PAIRS, DriverPool, ReplicaPool
from corag_ray.types import Score

QUERY = Query("a question", rows=(4, 2))
MANY = [(number,) for number in range(40)]


class Method:
    def __init__(self, answer):
        self.answer, self.calls = answer, []

    def remote(self, *arguments):
        self.calls.append(arguments)
        return asyncio.ensure_future(self.answer(*arguments))


class Replicas:
    """A handle whose calls go to the replicas in turn; a score is the first number."""

    def __init__(self, names=("r1",), slow_s=0.0):
        self.names, self.slow_s = list(names), slow_s
        self.score, self.prepare = Method(self._score), Method(self._prepare)
        self.windows = Method(self._windows)

    async def _score(self, query, reading, combinations, deadline_s, both):
        replica = self.names[len(self.score.calls) % len(self.names)]
        await asyncio.sleep(self.slow_s)
        values = [float(combination[0]) for combination in combinations]
        return Scored(values, len(values), replica, [Score(value, value / 100) for value in values] if both else [])

    async def _prepare(self, query, embedded, deadline_s):
        return np.arange(3)

    async def _windows(self, query, combinations):
        return [2] * len(combinations), (9, 7)


def pool_of(replicas, wait_s=5.0, windowed=False):
    return ReplicaPool("bge", replicas, order_sensitive=True, windowed=windowed, wait_s=wait_s)


async def opened(pool, deadline_s=float("inf")):
    return await pool.open(QUERY, None, deadline_s)


def test_the_query_travels_as_text_and_rows_so_that_any_replica_can_answer():
    replicas = Replicas()

    async def run():
        return await (await opened(pool_of(replicas))).score("raw", [(1,), (0, 1)], float("inf"))

    assert asyncio.run(run()).values == [1.0, 0.0]
    assert replicas.prepare.calls == []
    assert replicas.score.calls == [(QUERY, "raw", [(1,), (0, 1)], float("inf"), False)]


def test_an_expansion_is_split_over_as_many_replicas_as_have_answered_and_are_free():
    replicas = Replicas(["r1", "r2"])

    async def run():
        query = await opened(pool_of(replicas))
        sizes = []
        for _ in range(3):
            before = len(replicas.score.calls)
            scored = await query.score("raw", MANY, float("inf"), True)
            assert scored.values == [float(number) for number in range(40)]
            assert scored.both == [Score(float(number), number / 100) for number in range(40)]
            assert scored.computed == 40
            sizes.append([len(call[2]) for call in replicas.score.calls[before:]])
        return sizes

    assert asyncio.run(run()) == [[40], [40], [20, 20]]


def test_a_small_expansion_is_not_split_into_calls_that_cost_more_than_they_spread():
    pool = pool_of(Replicas())
    pool._seen_s = {f"r{n}": time.monotonic() for n in range(10)}
    assert [len(part) for part in pool.parts(MANY[: 2 * LEAST_PAIRS])] == [LEAST_PAIRS] * 2
    assert [len(part) for part in pool.parts(MANY[:3])] == [3]


def test_replicas_that_have_not_answered_for_long_do_not_count():
    pool = pool_of(Replicas())
    pool._seen_s = {"r1": time.monotonic(), "gone": time.monotonic() - 60}
    assert [len(part) for part in pool.parts(MANY)] == [40]


def test_calls_under_way_take_their_replicas():
    replicas = Replicas(["r1", "r2"], slow_s=0.05)

    async def run():
        pool = pool_of(replicas)
        pool._seen_s = {"r1": time.monotonic(), "r2": time.monotonic()}
        query = await opened(pool)
        first = asyncio.create_task(query.score("raw", MANY, float("inf")))
        await asyncio.sleep(0.01)
        second = await query.score("raw", MANY, float("inf"))
        return [len(call[2]) for call in replicas.score.calls], second.values == (await first).values

    assert asyncio.run(run()) == ([20, 20, 40], True)


def test_a_pool_that_takes_too_long_is_out_of_reach_and_at_the_deadline_it_is_late():
    async def run(wait_s, deadline_s):
        query = await opened(pool_of(Replicas(slow_s=5.0), wait_s=wait_s))
        return await query.score("raw", MANY, deadline_s)

    with pytest.raises(UnavailableError, match="'bge' did not answer in time"):
        asyncio.run(run(0.02, time.time() + 60))
    with pytest.raises(DeadlineError, match="before 'bge' answered"):
        asyncio.run(run(60.0, time.time() + 0.02))


def test_windows_are_asked_of_a_replica_only_where_there_are_any():
    replicas = Replicas()

    async def run(windowed):
        query = await opened(pool_of(replicas, windowed=windowed))
        return await query.windows([(1,)], float("inf"))

    assert asyncio.run(run(False)) is None
    assert replicas.windows.calls == []
    assert asyncio.run(run(True)) == ([2], (9, 7))


class Scorer:
    async def score(self, context, combinations, deadline_s, both):
        self.context = context()
        return Scored([1.0] * len(combinations), len(combinations))


def test_what_is_scored_here_comes_in_one_call_and_then_none():
    replicas, scorer = Replicas(), Scorer()

    async def run():
        pool = DriverPool("late_interaction", replicas, scorer, order_sensitive=False, wait_s=5.0)
        query = await pool.open(QUERY, "embedded", 9e9)
        for _ in range(3):
            await query.score("raw", [(0,)], float("inf"))
        return await query.windows([(0,)], float("inf"))

    assert asyncio.run(run()) is None
    assert replicas.prepare.calls == [(QUERY, "embedded", 9e9)]
    assert replicas.score.calls == []
    assert scorer.context.prepared.tolist() == [0, 1, 2]
    assert (scorer.context.reranker, scorer.context.reading) == ("late_interaction", "raw")
