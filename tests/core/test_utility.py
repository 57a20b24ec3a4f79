"""The utility formula, against numbers worked by hand."""

import math

import pytest

from corag_ray.core.utility import utility

NODE = {"reward_sum": 1.4, "visits": 2, "cost": 2, "budget_tokens": 8, "exploration": 2.4, "cost_weight": 0.1}


def test_the_three_terms_add_up_as_by_hand():
    # 1.4 / 2 = 0.700;  ln 8 = 2.0794, / 2 = 1.0397, root 1.0197, * 2.4 = 2.4472;  0.1 * 2 / 8 = 0.025
    assert utility(**NODE, total_visits=8) == pytest.approx(0.700 + 2.4472 - 0.025, abs=5e-5)


def test_with_one_visit_in_all_nothing_is_left_to_explore():
    assert utility(**NODE, total_visits=1) == pytest.approx(0.675)


def test_no_visits_in_all_a_search_cut_in_its_first_expansion_counts_as_one():
    assert utility(**NODE, total_visits=0) == utility(**NODE, total_visits=1)


def test_a_budget_of_zero_is_finite_and_still_prefers_the_cheaper_node():
    cheap = utility(**{**NODE, "budget_tokens": 0}, total_visits=8)
    dear = utility(**{**NODE, "budget_tokens": 0, "cost": 3}, total_visits=8)
    assert math.isfinite(dear)
    assert cheap - dear == pytest.approx(0.1)


def test_a_node_without_visits_is_a_loud_defect():
    with pytest.raises(ZeroDivisionError):
        utility(**{**NODE, "visits": 0}, total_visits=8)
