"""Where nodes stand on the map: the heaviest are shown, each below its parent, and what is hidden is counted."""

import random

from corag_ray.reports.explanation import ExplainedNode
from corag_ray.reports.tree_map import SHOWN_CHILDREN, list_spots, path_to, tree_spots, value_of


def node(combination, parent, raw=0.5, visits=1, calibrated=0.25):
    return ExplainedNode(combination, parent, 1, 1, raw, calibrated, visits, raw, None)


def placed(spots):
    return [(spot.nodes, spot.is_fold, spot.parent, spot.column, spot.row) for spot in spots]


# The root with three children, the last of which has two: the heaviest is 2, then 0 and 1 by score.
SMALL = [
    node((), None, None, 5),
    node((0,), 0, 0.4),
    node((1,), 0, 0.3),
    node((2,), 0, 0.1, 2),
    node((2, 0), 3, 0.6),
    node((2, 1), 3, 0.7),
]


def test_children_stand_heaviest_first_and_a_parent_in_the_middle_of_its_children():
    assert placed(tree_spots(SMALL, "raw", [])) == [
        ((0,), False, None, 0, 1.75),  # between the first child at .5 and the last at 3
        ((3,), False, 0, 1, 0.5),
        ((5,), False, 1, 2, 0.0),
        ((4,), False, 1, 2, 1.0),
        ((1,), False, 0, 1, 2.0),
        ((2,), False, 0, 1, 3.0),
    ]


def test_what_is_not_shown_is_counted_below_its_parent():
    # Three nodes: the root, 2 with its two visits, and 2+1 of the highest score.
    assert placed(tree_spots(SMALL, "raw", [], limit=3)) == [
        ((0,), False, None, 0, 1.25),
        ((3,), False, 0, 1, 0.5),
        ((5,), False, 1, 2, 0.0),
        ((4,), True, 1, 2, 1.0),
        ((1, 2), True, 0, 1, 2.0),
    ]


def test_kept_nodes_and_all_above_them_are_shown_however_light_they_are():
    shown = {spot.nodes for spot in tree_spots(SMALL, "raw", [4], limit=3) if not spot.is_fold}
    assert shown == {(0,), (3,), (4,)}


def test_of_six_hundred_nodes_a_page_shows_few_and_counts_each_of_the_others_once():
    rng = random.Random(5)
    nodes = [node((), None, None, 10)] + [node((n,), 0, rng.random(), 2 if n < 9 else 1) for n in range(60)]
    nodes += [node((n, m), n + 1, rng.random()) for n in range(9) for m in range(60) if m != n]
    nodes[591] = node((8, 59), 9, 0.0)
    spots = tree_spots(nodes, "raw", [591])
    assert (591,) in [spot.nodes for spot in spots]
    assert sorted(place for spot in spots for place in spot.nodes) == list(range(592))
    assert len([spot for spot in spots if not spot.is_fold]) == 48
    children = [sum(one.parent == place and not one.is_fold for one in spots) for place in range(len(spots))]
    assert max(children) == SHOWN_CHILDREN
    cells = [(spot.column, spot.row) for spot in spots]
    assert len(set(cells)) == len(cells)
    assert all(spot.parent is None or spot.parent < place for place, spot in enumerate(spots))


def test_a_deep_tree_is_no_matter():
    chain = [node(tuple(range(n)), n - 1 if n else None) for n in range(1500)]
    spots = tree_spots(chain, "raw", [1499])
    assert [spot.column for spot in spots] == list(range(1500))
    assert {spot.row for spot in spots} == {0.0}
    assert path_to(chain, 1499) == list(range(1500))
    assert path_to(chain, None) == []


def test_a_list_has_a_column_for_each_number_of_chunks_best_first():
    asked = [node((0,), None, 0.1), node((1,), None, 0.9), node((1, 0), None, None), node((0, 2, 1), None, 0.4)]
    assert placed(list_spots(asked, "raw", [])) == [
        ((1,), False, None, 0, 0),
        ((0,), False, None, 0, 1),
        ((2,), False, None, 1, 0),
        ((3,), False, None, 2, 0),
    ]


def test_a_column_shows_its_share_and_the_chosen_ones_and_counts_the_others():
    singles = [node((n,), None, n / 10) for n in range(9)]
    assert placed(list_spots(singles, "raw", [0], limit=3)) == [
        ((8,), False, None, 0, 0),  # four are shown at least: 0, which is chosen, and the best three
        ((7,), False, None, 0, 1),
        ((6,), False, None, 0, 2),
        ((0,), False, None, 0, 3),
        ((5, 4, 3, 2, 1), True, None, 0, 4),
    ]
    assert list_spots([], "raw", []) == []


def test_the_score_is_the_one_that_the_search_reads():
    assert [value_of(node((0,), None), reading) for reading in ("raw", "calibrated", None)] == [0.5, 0.25, 0.5]
