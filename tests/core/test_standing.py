"""Spread and worth, worked by hand."""

import math

import pytest

from corag_ray.core.standing import spread, worths


def test_the_spread_is_the_populations_deviation_and_none_where_there_is_nothing_to_compare():
    assert spread([1.0, 3.0, 5.0, 7.0]) == pytest.approx(math.sqrt(5))  # deviations 3, 1, 1, 3: 20 / 4
    assert spread([2.0]) == spread([]) == spread([2.0, 2.0, 2.0]) == 0.0


def test_worth_falls_by_deviations_behind_the_best_of_both_scores_together():
    # Scores 0, 2: -1, +1. Priors 5, 5 tell nothing: 0, 0. The means -1/2, +1/2 deviate by 1/2: two of that apart.
    assert worths([0.0, 2.0], [5.0, 5.0]) == pytest.approx([math.exp(-2), 1.0])
    # Scores 1, 1, 4: -r, -r, 2r with r = 1 / sqrt(2). Priors 4, 1, 1: 2r, -r, -r. Means: r/2, -r, r/2.
    # Deviation of these: sqrt((1/4 + 1 + 1/4) / 3) r = r / sqrt(2); the second lies 1.5 r, so 1.5 sqrt(2), behind.
    assert worths([1.0, 1.0, 4.0], [4.0, 1.0, 1.0]) == pytest.approx([1.0, math.exp(-1.5 * math.sqrt(2)), 1.0])


def test_neither_scale_matters_and_equals_are_worth_the_same():
    usual = worths([0.1, 0.4, 0.2], [3.0, 2.0, 1.0])
    assert worths([10.0, 40.0, 20.0], [0.3, 0.2, 0.1]) == pytest.approx(usual)
    assert worths([0.5, 0.5], [1.0, 1.0]) == [1.0, 1.0]
    assert worths([0.5], [1.0]) == [1.0]
    assert worths([], []) == []
