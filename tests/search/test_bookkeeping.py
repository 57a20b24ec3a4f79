"""Time beside scoring, by a clock that only scoring moves."""

from types import SimpleNamespace

import pytest
from search.made import known, query_of

from jobs.search import bookkeeping
from jobs.search.contestants import methods_of


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        self.now += 0.001  # a millisecond between two looks
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(bookkeeping, "time", SimpleNamespace(perf_counter=made.perf_counter))
    return made


def test_what_scoring_takes_does_not_count(clock):
    def slow(combination):
        clock.now += 5.0
        return 0.5 - 0.01 * len(combination)

    query = query_of([10] * 30)
    method = methods_of(["corag"], "late_interaction", 40)["corag"]
    took = bookkeeping.bookkeeping_ms(query, known(slow), method, 20, 40)
    # Beside the two looks at the clock of every round, a millisecond each, nothing passes: 40 pairs take a few rounds.
    assert 0 < took < 40


def test_the_share_is_of_the_cross_encoders_sixty_singles(clock, monkeypatch):
    def one_second(combination):
        clock.now += 1.0
        return 0.5

    monkeypatch.setattr(bookkeeping, "bookkeeping_ms", lambda query, known, method, k, budget: k + budget / 1000)
    queries = [query_of([10] * 70) for _ in range(4)]
    cross_encoder = known(one_second, order_sensitive=True).reranker
    told = bookkeeping.measure(queries, known(lambda c: 0.5).reranker, cross_encoder, None)
    assert len(cross_encoder.asked) == 60  # of one query in four
    assert told["bookkeeping_ms"]["20.512"] == 20.512 and len(told["bookkeeping_ms"]) == 9
    assert told["cross_encoder_singles_ms"] == pytest.approx(60_000, abs=2)
    assert told["share_of_singles"]["1024"] == pytest.approx(61.024 / 60_000, abs=1e-5)
    assert told["holds"]
    monkeypatch.setattr(bookkeeping, "bookkeeping_ms", lambda *_: 1300.0)
    assert not bookkeeping.measure(queries, known(lambda c: 0.5).reranker, cross_encoder, None)["holds"]
