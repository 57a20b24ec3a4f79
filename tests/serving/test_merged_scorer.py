"""Merged scoring: searches of different queries share calls, and each is told what it would be told alone."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from corag_ray.memo import Memo
from corag_ray.scoring import ScoringContext
from corag_ray.serving.merged_scorer import MergedScorer
from corag_ray.types import Score


class Sums:
    """A combination's raw score is the query's number plus its members; its calibrated one a tenth of that."""

    name, order_sensitive = "sums", True

    def __init__(self):
        self.calls = []

    def score(self, pairs):
        self.calls.append(len(pairs))
        raw = [float("nan") if 9 in combination else prepared + sum(combination) for prepared, combination in pairs]
        return [Score(value, value / 10) for value in raw]

    def calibrated(self, raw):
        return raw / 10


@pytest.fixture
def sums():
    return Sums()


def run(sums, *asks, batch_pairs=100, memo=None):
    """Each ask is (query's number, reading, combinations, and `both` where that is wanted); all are made at once."""

    async def scored():
        with ThreadPoolExecutor(1) as thread:
            limits = {"batch_pairs": batch_pairs, "most_waiting_pairs": 1000}
            scorer = MergedScorer("sums", sums, memo or Memo({}, 0), thread, **limits)
            contexts = [ScoringContext("sums", number, reading) for number, reading, *_ in asks]
            calls = [
                scorer.score(lambda context=context: context, combinations, float("inf"), *both)
                for context, (_, _, combinations, *both) in zip(contexts, asks, strict=True)
            ]
            return await asyncio.gather(*calls), scorer.done

    return asyncio.run(scored())


def test_two_queries_share_a_call_and_each_reads_its_own_value(sums):
    [first, second], done = run(sums, (100, "raw", [(1,), (1, 2)]), (200, "calibrated", [(3,)]))
    assert first.values == [101.0, 103.0]
    assert second.values == [20.3]
    assert (first.computed, second.computed) == (2, 1)
    assert sums.calls == [3]
    assert (done.batches, done.weight) == (1, 3)


def test_what_exceeds_a_batch_goes_in_several_and_comes_back_in_order(sums):
    combinations = [(number,) for number in range(8)]
    [scored], _ = run(sums, (0, "raw", combinations), batch_pairs=3)
    assert scored.values == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert sums.calls == [3, 3, 2]


def test_what_is_not_finite_is_told_as_none(sums):
    [scored], _ = run(sums, (0, "raw", [(1,), (9,), (2,)]))
    assert scored.values == [1.0, None, 2.0]


def test_both_values_come_in_order_to_who_wants_them_and_not_to_who_shares_the_call(sums):
    wanted = (100, "raw", [(1,), (9,), (2, 0)], True)
    [first, second], _ = run(sums, wanted, (200, "raw", [(3,)]), batch_pairs=2)
    assert first.both == [Score(101.0, 10.1), None, Score(102.0, 10.2)]
    assert first.values == [101.0, None, 102.0]
    assert (second.values, second.both) == ([203.0], [])


def test_a_query_that_cannot_be_prepared_fails_alone(sums):
    async def scored():
        with ThreadPoolExecutor(1) as thread:
            scorer = MergedScorer("sums", sums, Memo({}, 0), thread, batch_pairs=9, most_waiting_pairs=9)

            def broken():
                raise ValueError("no such row")

            good = ScoringContext("sums", 1, "raw")
            asks = [scorer.score(context, [(1,)], float("inf")) for context in (broken, lambda: good)]
            return await asyncio.gather(*asks, return_exceptions=True)

    failed, fine = asyncio.run(scored())
    assert isinstance(failed, ValueError)
    assert fine.values == [2.0]
