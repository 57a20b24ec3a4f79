"""Regret to Upper on a few candidates."""

import pytest
from search.made import known, query_of

from corag_ray.core.strategy import Candidates
from jobs.search.contestants import methods_of
from jobs.search.small import figures_of, first_of, holds, in_chunks, scores_of


def test_upper_is_the_best_of_all_combinations_of_at_most_five_chunks_whatever_they_cost():
    worth = {0: 0.5, 1: 0.4, 2: 0.3, 3: 0.2, 4: 0.1, 5: 0.05}
    query = query_of([999] * 6)
    methods = methods_of(["greedy", "corag"], "late_interaction", 590)
    told = scores_of(query, known(lambda c: sum(worth[n] for n in c)), methods, query.candidates)
    assert {name: round(score, 3) for name, score in told.items()} == {
        "single": 0.5,
        "upper": 1.5,  # all but the last: six chunks would be 1.55
        "greedy": 1.5,
        "corag": 1.5,
    }


def test_regret_is_upper_less_ones_own_and_closed_the_share_of_the_summed_gap():
    told = [
        {"single": 0.5, "upper": 0.9, "corag": 0.9, "greedy": 0.7},
        {"single": 0.6, "upper": 0.7, "corag": 0.65, "greedy": 0.6},
        {"single": 0.8, "upper": 0.8, "corag": 0.8, "greedy": 0.8},
    ]
    figures = figures_of(told, seed=0)
    assert figures["corag"]["closed"] == pytest.approx((0.4 + 0.05) / 0.5)
    assert figures["greedy"]["closed"] == pytest.approx(0.2 / 0.5)
    assert figures["greedy"]["regret"]["mean"] == pytest.approx(0.1)
    assert figures["single"]["closed"] == 0.0
    assert not holds(figures) and holds({"corag": {"closed": 0.95}})
    assert figures_of(told[2:], seed=0)["corag"]["closed"] == 1.0


def test_the_first_few_candidates_keep_all_that_is_known_of_them_and_each_costs_one():
    similarity = ((1.0, 0.2, 0.3), (0.2, 1.0, 0.4), (0.3, 0.4, 1.0))
    three = Candidates((5, 6, 7), (0.9, 0.8, 0.7), (0, 1, 0), (3, 4, 5), similarity, order_matters=False)
    two = first_of(three, 2)
    assert two == Candidates((5, 6), (0.9, 0.8), (0, 1), (3, 4), ((1.0, 0.2), (0.2, 1.0)), order_matters=False)
    assert in_chunks(two).costs == (1, 1)
