"""Scoring: what is sent to which reranker, once, and what comes back."""

import math
import random
import time
from collections import defaultdict

import pytest

from corag_ray.errors import ProtocolError
from corag_ray.scoring import ScoringContext, score_pairs, shared_ms
from corag_ray.types import Score


class Recorder:
    """Scores by a function of (prepared, combination) and keeps every call."""

    def __init__(self, value):
        self.value, self.calls = value, []

    def score(self, pairs):
        self.calls.append(list(pairs))
        return [self.value(prepared, combination) for prepared, combination in pairs]


def summed(prepared, combination):
    return Score(float(prepared[0] + sum(combination)), 0.5)


def test_each_distinct_query_and_combination_is_scored_once_and_told_to_all_who_asked():
    model, q, other = Recorder(summed), [100], [200]
    searches = [ScoringContext("m", q, "raw"), ScoringContext("m", q, "raw"), ScoringContext("m", other, "raw")]
    pairs = [(0, (1,)), (1, (1,)), (2, (1,)), (0, (2,)), (1, (2, 1)), (0, (1,))]
    assert score_pairs({"m": model}, searches, pairs) == [101.0, 101.0, 201.0, 102.0, 103.0, 101.0]
    assert model.calls == [[(q, (1,)), (other, (1,)), (q, (2,)), (q, (2, 1))]]


def test_equal_but_separate_queries_are_not_taken_for_one():
    model = Recorder(summed)
    assert score_pairs(
        {"m": model}, [ScoringContext("m", [1], "raw"), ScoringContext("m", [1], "raw")], [(0, (0,)), (1, (0,))]
    )
    assert len(model.calls[0]) == 2


def test_the_order_of_a_combination_is_part_of_it():
    model = Recorder(lambda prepared, c: Score(float(c[0]), 0.0))
    assert score_pairs({"m": model}, [ScoringContext("m", "q", "raw")], [(0, (1, 2)), (0, (2, 1))]) == [1.0, 2.0]


def test_one_call_a_reranker_whatever_the_mixture():
    a, b = Recorder(lambda p, c: Score(1.0, 0.0)), Recorder(lambda p, c: Score(2.0, 0.0))
    searches = [ScoringContext("a", "q", "raw"), ScoringContext("b", "q", "raw")]
    pairs = [(0, (0,)), (1, (0,)), (0, (1,)), (1, (1,))]
    assert score_pairs({"a": a, "b": b}, searches, pairs) == [1.0, 2.0, 1.0, 2.0]
    assert a.calls == b.calls == [[("q", (0,)), ("q", (1,))]]


def test_a_reranker_nobody_asks_is_not_called():
    idle, model = Recorder(summed), Recorder(summed)
    assert score_pairs({"m": model, "idle": idle}, [ScoringContext("m", [0], "raw")], [(0, (3,))]) == [3.0]
    assert score_pairs({"m": model, "idle": idle}, [ScoringContext("m", [0], "raw")], []) == []
    assert idle.calls == []
    assert len(model.calls) == 1


def test_two_readings_of_one_scoring_get_raw_and_calibrated():
    model = Recorder(lambda p, c: Score(-4.25, 0.125))
    searches = [ScoringContext("m", "q", "raw"), ScoringContext("m", "q", "calibrated")]
    assert score_pairs({"m": model}, searches, [(0, (0,)), (1, (0,))]) == [-4.25, 0.125]
    assert model.calls == [[("q", (0,))]]


@pytest.mark.parametrize(("given", "told"), [(0.12349, 0.123), (0.12351, 0.124), (-7.0004, -7.0), (1e-9, 0.0)])
def test_scores_are_rounded_to_three_decimals(given, told):
    model = Recorder(lambda p, c: Score(given, given))
    searches = [ScoringContext("m", "q", "raw"), ScoringContext("m", "q", "calibrated")]
    assert score_pairs({"m": model}, searches, [(0, (0,)), (1, (0,))]) == [told, told]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_none_for_its_reading_alone(bad):
    model = Recorder(lambda p, c: Score(bad, 0.5) if c == (0,) else Score(0.25, bad))
    searches = [ScoringContext("m", "q", "raw"), ScoringContext("m", "q", "calibrated")]
    pairs = [(0, (0,)), (1, (0,)), (0, (1,)), (1, (1,))]
    assert score_pairs({"m": model}, searches, pairs) == [None, 0.5, 0.25, None]


@pytest.mark.parametrize("change", [lambda scores: scores[:-1], lambda scores: [*scores, Score(0.0, 0.0)]])
def test_a_wrong_number_of_scores_is_a_protocol_error_that_names_the_reranker(change):
    class Miscounting(Recorder):
        def score(self, pairs):
            return change(super().score(pairs))

    with pytest.raises(ProtocolError, match=r"reranker 'm' gave [13] scores for 2 pairs"):
        score_pairs({"m": Miscounting(summed)}, [ScoringContext("m", [0], "raw")], [(0, (0,)), (0, (1,))])


def test_random_mixtures_equal_scoring_each_pair_alone():
    chance = random.Random(5)
    for _ in range(50):
        models = {name: Recorder(lambda p, c, n=name: Score(hash((n, p, c)) % 9973 / 7, 0.3)) for name in "ab"}
        searches = [
            ScoringContext(chance.choice("ab"), chance.randrange(3), chance.choice(["raw", "calibrated"]))
            for _ in range(5)
        ]
        pairs = [(chance.randrange(5), tuple(chance.sample(range(4), chance.randint(1, 3)))) for _ in range(30)]
        together = score_pairs(models, searches, pairs)
        assert together == [score_pairs(models, searches, [pair])[0] for pair in pairs]


def test_what_each_rerankers_calls_took_is_added_up(monkeypatch):
    class Ticking(Recorder):
        def score(self, pairs):
            nonlocal now_s
            now_s += 0.25 * len(pairs)
            return super().score(pairs)

    now_s, took_ms = 0.0, defaultdict(float)
    monkeypatch.setattr(time, "perf_counter", lambda: now_s)
    searches = [ScoringContext("a", [0], "raw"), ScoringContext("b", [0], "raw")]
    models = {"a": Ticking(summed), "b": Ticking(summed)}
    score_pairs(models, searches, [(0, (0,)), (0, (1,)), (1, (0,))], took_ms)
    score_pairs(models, searches, [(1, (1,))], took_ms)
    assert took_ms == {"a": 500.0, "b": 500.0}


def test_time_is_shared_by_the_pairs_of_each_reranker_and_the_rest_by_all_pairs():
    searches = [ScoringContext(name, "q", "raw") for name in "aabc"]
    # a's 12 ms over 3 + 1 pairs are 3 a pair, b's 20 over 4 are 5; the rest, 40 - 32 over all 8, is 1 a pair.
    assert shared_ms(searches, [3, 1, 4, 0], {"a": 12.0, "b": 20.0}, 40.0) == [12.0, 4.0, 24.0, 0.0]
    assert shared_ms([], [], {}, 1.0) == []
