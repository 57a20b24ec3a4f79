"""One node a set: what is made, what is tried next, and when nothing is left."""

import pytest

from corag_ray.core.set_tree import SetTree
from corag_ray.core.strategy import Candidates
from corag_ray.core.tree import depth_first


def tree(costs, budget, documents=None, positions=None, order_matters=False):
    zeros = (0,) * len(costs)
    return SetTree(
        Candidates(tuple(costs), zeros, documents or tuple(range(len(costs))), positions or zeros, (), order_matters),
        budget,
    )


def told(made, scores):
    for node in made:
        node.record(scores[frozenset(node.combination)])
    return [node.combination for node in made]


def combinations(nodes):
    return [node.combination for node in nodes]


def test_a_set_has_one_node_whichever_part_it_is_made_from():
    sets = tree((1, 1, 1), 3)
    a, b, _ = sets.widen(sets.root, 3)
    both = sets.add((1, 0), a)
    assert both.combination == (0, 1) and both.parent is a and both.cost == 2
    assert sets.add((0, 1), b) is None
    assert sets.node_of({1, 0}) is both and sets.node_of(()) is sets.root and sets.node_of({0, 2}) is None


def test_over_the_budget_nothing_is_made():
    sets = tree((2, 3, 6), 8)
    assert combinations(sets.widen(sets.root, 9)) == [(0,), (1,), (2,)]
    assert sets.add((1, 2), sets.root) is None
    assert sets.add((), sets.root) is None
    assert combinations(sets.widen(sets.node_of({2}), 9)) == [(0, 2)]
    narrow = tree((9, 8), 8)
    assert combinations(narrow.widen(narrow.root, 9)) == [(1,)]


@pytest.mark.parametrize(("order_matters", "stands"), [(False, (0, 1, 2, 3)), (True, (2, 0, 1, 3))])
def test_a_set_stands_by_rank_or_where_order_matters_as_in_its_documents(order_matters, stands):
    # Candidates 0, 2 and 1, 3 are of one document each; 2 stands before 0 in theirs, 1 before 3.
    sets = tree((1,) * 4, 4, documents=(0, 1, 0, 1), positions=(5, 0, 1, 9), order_matters=order_matters)
    assert sets.add((3, 1, 0, 2), sets.root).combination == stands


def test_another_order_is_a_leaf_that_is_made_once():
    sets = tree((1, 1), 2, order_matters=True)
    node = sets.add((0, 1), sets.root)
    leaf = sets.add_order((1, 0), node)
    assert (leaf.combination, leaf.cost, leaf.parent, leaf.expanded) == ((1, 0), 2, node, True)
    assert node.children == [leaf]
    assert sets.add_order((1, 0), node) is None
    assert sets.add_order((0, 1), node) is None
    assert not sets.is_open(leaf)


def test_first_come_those_that_added_most_to_the_parent_and_last_those_never_tried():
    # Singles .1, .5, .6, .2 of the first four: 2 is the best. Between the least, .1, and the most, .6, the others lie
    # at 1: .8, 3: .2, 0: 0; 4 and 5 were never tried.
    sets = tree((1,) * 6, 6)
    scores = {frozenset({n}): s for n, s in enumerate((0.1, 0.5, 0.6, 0.2))}
    told(sets.widen(sets.root, 4), scores)
    sets.learn(sets.root)
    assert sets.width_of(sets.root) == 4 and not sets.root.expanded
    best = sets.node_of({2})
    made = sets.widen(best, 3)
    assert combinations(made) == [(1, 2), (2, 3), (0, 2)]
    # To 2 they add 0, .3 and .1. At {2, 3}: 0 at 1/3, 1 at 0, both before 4 and 5, which come by rank.
    told(made, {frozenset({1, 2}): 0.6, frozenset({2, 3}): 0.9, frozenset({0, 2}): 0.7})
    sets.learn(best)
    assert combinations(sets.widen(sets.node_of({2, 3}), 9)) == [(0, 2, 3), (1, 2, 3), (2, 3, 4), (2, 3, 5)]
    assert combinations(sets.widen(best, 1)) == [(2, 4)]


def test_where_it_was_not_tried_at_the_parent_the_place_at_the_next_ancestor_counts():
    # At the root 0: .0, 1: 1, 2: .5, 3: .9 of the way. At {1} only 3 and 2 are tried, and 3 adds more.
    sets = tree((1,) * 4, 4)
    told(sets.widen(sets.root, 4), {frozenset({n}): s for n, s in enumerate((0.0, 1.0, 0.5, 0.9))})
    sets.learn(sets.root)
    one = sets.node_of({1})
    told(sets.widen(one, 2), {frozenset({1, 3}): 1.4, frozenset({1, 2}): 1.2})
    sets.learn(one)
    # Below {1, 3}: 2 has place 0 at {1}, and 0 place 0 at the root: equals by rank.
    assert combinations(sets.widen(sets.node_of({1, 3}), 9)) == [(0, 1, 3), (1, 2, 3)]


def test_a_set_known_from_another_part_is_not_made_again_but_its_gain_is_learned():
    sets = tree((1,) * 3, 3)
    told(sets.widen(sets.root, 3), {frozenset({0}): 0.5, frozenset({1}): 0.4, frozenset({2}): 0.3})
    sets.learn(sets.root)
    first, second = sets.node_of({0}), sets.node_of({1})
    told(sets.widen(first, 9), {frozenset({0, 1}): 0.6, frozenset({0, 2}): 0.9})
    sets.learn(first)
    made = sets.widen(second, 9)
    assert combinations(made) == [(1, 2)]
    told(made, {frozenset({1, 2}): 0.5})
    sets.learn(second)
    # 0 added .2 to {1}, 2 added .1: below {1, 2} there is 0 alone, below {0, 1} 2 alone.
    assert sets.width_of(second) == 2 and second.expanded


def test_what_cannot_be_scored_teaches_nothing_and_is_not_open():
    sets = tree((1,) * 3, 3)
    told(sets.widen(sets.root, 3), {frozenset({0}): 0.5, frozenset({1}): None, frozenset({2}): 0.3})
    sets.learn(sets.root)
    assert [sets.is_open(node) for node in sets.root.children] == [True, False, True]
    assert combinations(sets.widen(sets.node_of({0}), 9)) == [(0, 2), (0, 1)]  # 1 counts as never tried


def test_a_node_is_finished_when_all_below_it_is_and_a_leaf_without_room_from_the_start():
    sets = tree((1, 1), 2)
    told(sets.widen(sets.root, 2), {frozenset({0}): 0.5, frozenset({1}): 0.4})
    sets.learn(sets.root)
    first, second = sets.root.children
    assert sets.is_open(first) and sets.is_open(second) and sets.is_open(sets.root)
    told(sets.widen(first, 9), {frozenset({0, 1}): 0.9})
    assert not sets.is_open(sets.node_of({0, 1})) and sets.node_of({0, 1}).expanded
    sets.learn(first)
    assert not sets.is_open(first) and sets.is_open(sets.root)
    assert sets.widen(second, 9) == []
    sets.learn(second)
    assert not sets.is_open(second) and not sets.is_open(sets.root)
    assert len(sets.nodes()) == 3 == sum(1 for node in depth_first(sets.root) if node.combination)
