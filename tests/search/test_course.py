"""What a search had chosen after so many pairs."""

import math

from search.made import known, query_of

from jobs.search.contestants import STRATEGIES, methods_of
from jobs.search.course import course_of, new_search, remembered, score_for, seen_by
from jobs.search.rows import Point

METHODS = methods_of(list(STRATEGIES), "late_interaction", 590)


def score(combination):
    return round(sum(1 / (2 + n) for n in combination) - 0.2 * len(combination) + 0.1 * (set(combination) >= {1, 3}), 4)


def test_a_course_read_off_at_limits_is_that_of_searches_that_each_ended_there():
    query = query_of([3] * 9, evidence=(1, 3))
    for name, method in METHODS.items():
        if name == "mmr":
            continue  # reads similarities
        seen = seen_by(query, known(score).reranker)
        together = course_of(query, known(score), method, seen, 10, [4, 9, 25, 200])
        for point in together:
            assert course_of(query, known(score), method, seen, 10, [point.limit]) == [point]
            assert point.pairs <= point.limit and point.tokens <= 10


def test_the_score_is_that_of_the_whole_selection_though_naive_rag_never_asked_for_it():
    query = query_of([3] * 4, evidence=(0, 3))
    told = known(lambda c: 1.0 - c[0] / 10 - len(c) / 100)
    [first, point] = course_of(query, told, METHODS["naive"], query.candidates, 7, [1, 60])
    # After one pair 0 alone has a score, .99, and is chosen alone; then 0 and 1 fit, together .98.
    assert first == Point(limit=1, pairs=1, score=0.99, tokens=3, recall=0.5)
    assert point == Point(limit=60, pairs=4, score=0.98, tokens=6, recall=0.5)


def test_nothing_chosen_has_no_score_and_no_tokens():
    [point] = course_of(query_of([9]), known(score), METHODS["corag"], query_of([9]).candidates, 5, [60])
    assert point == Point(limit=60, pairs=0, score=None, tokens=0, recall=0.0)
    nothing = known(lambda c: math.nan)
    [point] = course_of(query_of([9]), nothing, METHODS["naive"], query_of([9]).candidates, 9, [60])
    assert (point.pairs, point.score, point.tokens) == (1, None, 0)


def test_a_search_is_told_rounded_scores_of_its_reading():
    query = query_of([1])
    raw = new_search(METHODS["beam"], query.candidates, 1)
    calibrated = new_search(
        methods_of([], "x", 9, ["reading=calibrated"])["corag reading=calibrated"], query.candidates, 1
    )
    told = known(lambda c: 0.12345)
    assert score_for(raw, told)([(0, (0,))]) == [0.123]
    assert score_for(calibrated, told)([(0, (0,))]) == [0.012]
    assert score_for(raw, known(lambda c: math.inf))([(0, (0,))]) == [None]


def test_a_query_is_prepared_once_and_order_matters_as_the_reranker_says():
    query = query_of([1, 1])
    for order_sensitive in (True, False):
        reranker = known(score, order_sensitive).reranker
        assert seen_by(query, reranker).order_matters is order_sensitive
        assert remembered(query, reranker).prepared == "why?"
    asked = known(score)
    asked.score([(0, 1), (1, 0), (0, 1)])
    assert asked.reranker.asked == [(0, 1)]
