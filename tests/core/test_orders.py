"""Orders of a chosen combination, by hand."""

import itertools

import pytest

from corag_ray.core.orders import in_order
from corag_ray.core.strategy import Candidates

# candidates by rank 0..4; document 7 holds 1 and 3, in the order 3, 1
CANDIDATES = Candidates((1,) * 5, (0.0,) * 5, documents=(5, 7, 6, 7, 5), positions=(4, 9, 0, 2, 1))


def test_orders_by_hand():
    assert in_order("chosen", (3, 0, 2), CANDIDATES) == (3, 0, 2)
    assert in_order("rank", (3, 0, 2), CANDIDATES) == (0, 2, 3)
    assert in_order("document", (1, 2, 3, 4), CANDIDATES) == (3, 1, 2, 4)
    assert in_order("document", (3, 4, 0), CANDIDATES) == (4, 0, 3)
    assert in_order("ends_first", (4, 3, 2, 1, 0), CANDIDATES) == (0, 2, 4, 3, 1)
    assert in_order("ends_first", (4, 3, 2, 1), CANDIDATES) == (1, 3, 4, 2)


@pytest.mark.parametrize("order", ["rank", "document", "ends_first", "random"])
def test_the_order_depends_on_the_set_alone_and_loses_nothing(order):
    for combination in [(), (2,), (1, 4), (0, 2, 3), (4, 1, 0, 2)]:
        found = {in_order(order, arranged, CANDIDATES) for arranged in itertools.permutations(combination)}
        assert len(found) == 1
        assert sorted(found.pop()) == sorted(combination)


def test_random_orders_differ_between_questions_even_of_equal_costs():
    drawn = {
        in_order("random", (0, 1, 2, 3, 4), Candidates((64,) * 5, (0.0,) * 5, (0,) * 5, (place,) * 5))
        for place in range(20)
    }
    assert len(drawn) > 10
