"""The trace of a search: the paper's figure worked by hand, what the budget forbade, and why each strategy stopped."""

import random
from dataclasses import replace

import pytest
from core.scoring import random_candidates, score_of

from corag_ray.core.beam import BeamParams, BeamSearch
from corag_ray.core.drive import drive_lockstep
from corag_ray.core.exhaustive import ExhaustiveParams, ExhaustiveSearch
from corag_ray.core.fill import SinglesFill
from corag_ray.core.policy_tree import PRESETS, PolicyTreeSearch
from corag_ray.core.random_fill import RandomFill, RandomParams
from corag_ray.core.ranked import RankedParams
from corag_ray.core.strategy import Candidates
from corag_ray.core.trace import trace
from corag_ray.core.tree import Node
from corag_ray.types import Score

REPORT = PRESETS["report"]


def candidates(costs, order_matters=True):
    zeros = (0,) * len(costs)
    return Candidates(tuple(costs), (0.0,) * len(costs), zeros, zeros, order_matters=order_matters)


def traced(make, params, seen, budget, score, pair_limit=None):
    """A search driven as far as the limit goes: its trace, and what it asked for. `score` gives a value or None."""
    search, asked = make(seen, budget, params), {}

    def score_round(pairs):
        values = [score(combination) for _, combination in pairs]
        asked.update({c: None if v is None else Score(v, v / 2) for (_, c), v in zip(pairs, values, strict=True)})
        return values

    drive_lockstep([search], score_round, in_flight=1, pair_limit=pair_limit)
    return trace(search, seen, budget, asked), asked


# Figure 1 of the paper: chunks of 256 tokens. What it does not give is set here: x4 0.5, everything else 0.2.
FIGURE = {(0,): 0.3, (2,): 0.8, (0, 2): 0.4, (2, 3): 0.8, (3, 2): 0.9, (0, 1, 3): 0.6, (3,): 0.5}
# `report` (c 2.4, best child only) at 512 tokens, worked by hand. c is large against scores in 0..1, so the nodes with
# fewest visits come first, and among these the highest score: the root, then x3 (.8), x4 (.5), x1 (.3), x2 (.2). Then
# all singles have two visits and x3 the highest mean, (.8 + .8) / 2, and below it x3+x4 the highest score: it is
# expanded, nothing fits any more, and the search ends. Root: (.8 + .8 + .9 + .4 + .2) / 5 = .62.
# (combination, parent's place, pair, visits, mean reward, forbidden)
FIGURE_NODES = [
    ((), None, None, 5, 0.62, ()),
    ((0,), 0, 1, 2, 0.35, ()),  # (.3 + .4) / 2
    ((0, 1), 1, 11, 1, 0.2, None),
    ((0, 2), 1, 12, 1, 0.4, None),
    ((0, 3), 1, 13, 1, 0.2, None),
    ((1,), 0, 2, 2, 0.2, ()),
    ((1, 0), 5, 14, 1, 0.2, None),
    ((1, 2), 5, 15, 1, 0.2, None),
    ((1, 3), 5, 16, 1, 0.2, None),
    ((2,), 0, 3, 2, 0.8, ()),
    ((2, 0), 9, 5, 1, 0.2, None),
    ((2, 1), 9, 6, 1, 0.2, None),
    ((2, 3), 9, 7, 1, 0.8, (0, 1)),
    ((3,), 0, 4, 2, 0.7, ()),  # (.5 + .9) / 2
    ((3, 0), 13, 8, 1, 0.2, None),
    ((3, 1), 13, 9, 1, 0.2, None),
    ((3, 2), 13, 10, 1, 0.9, None),
]


def test_the_papers_figure_gives_the_tree_worked_by_hand():
    seen = candidates((256,) * 4)
    found, asked = traced(PolicyTreeSearch, REPORT, seen, 512, lambda combination: FIGURE.get(combination, 0.2))
    nodes = [(n.combination, n.parent, n.asked, n.visits, round(n.mean_reward, 6), n.forbidden) for n in found.nodes]
    assert nodes == FIGURE_NODES
    assert [node.cost for node in found.nodes] == [256 * len(node.combination) for node in found.nodes]
    assert [node.score for node in found.nodes] == [asked.get(node.combination) for node in found.nodes]
    assert found.nodes[12].score == Score(0.8, 0.4)
    assert (found.best, found.stopped, found.is_tree) == (((3, 2), 0.9), "dead_end", True)
    assert (found.reading, found.candidates, found.budget_tokens) == ("raw", seen, 512)


def test_the_budget_forbids_what_is_longer_than_the_room_left_and_nothing_else():
    # Of budget 8, chunk 2 (6) leaves 2: chunk 0 (2) fits, chunk 1 (3) does not. Alone, chunk 3 (9) never fits.
    scores = {(2,): 0.9, (2, 0): 0.5}
    found, _ = traced(
        PolicyTreeSearch, replace(REPORT, iterations=2), candidates((2, 3, 6, 9)), 8, lambda c: scores.get(c, 0.1)
    )
    forbidden = {node.combination: node.forbidden for node in found.nodes}
    assert forbidden == {(): (3,), (0,): None, (1,): None, (2,): (1, 3), (2, 0): None}
    ignored = replace(REPORT, iterations=2, over_budget="ignored")
    found, _ = traced(PolicyTreeSearch, ignored, candidates((2, 9)), 8, lambda c: 0.1)
    assert {node.forbidden for node in found.nodes} == {(), None}


def test_a_child_that_would_fit_and_was_not_made_is_not_the_budgets_doing():
    # As a search does that makes few children at a time: of 0, 1 and 2 (9 tokens) the root has 0 alone so far.
    search = PolicyTreeSearch(candidates((1, 1, 9)), 5, REPORT)
    search.root.children, search.root.expanded = [Node((0,), 1, search.root)], True
    assert trace(search, candidates((1, 1, 9)), 5, {}).nodes[0].forbidden == (2,)


def test_a_combination_without_score_keeps_its_place_among_the_pairs_and_has_no_mean():
    found, _ = traced(PolicyTreeSearch, REPORT, candidates((1, 1)), 1, {(0,): None, (1,): 0.5}.get)
    [_, first, second] = found.nodes
    assert (first.asked, first.score, first.visits, first.mean_reward) == (1, None, 0, None)
    assert (second.asked, second.score, second.visits, second.mean_reward) == (2, Score(0.5, 0.25), 1, 0.5)


def test_what_was_scored_outside_the_tree_stands_behind_it():
    search = PolicyTreeSearch(candidates((1, 1)), 2, REPORT)
    found = trace(search, candidates((1, 1)), 2, {(1, 0): Score(0.5, 0.25)})
    assert [(n.combination, n.parent, n.asked, n.cost, n.visits) for n in found.nodes] == [
        ((), None, None, 0, 0),
        ((1, 0), None, 1, 2, None),
    ]


def dice(combination):
    return score_of(7, combination)


@pytest.mark.parametrize(
    ("make", "params", "costs", "budget", "score", "stopped"),
    [
        (PolicyTreeSearch, replace(REPORT, iterations=2), (1,) * 4, 4, dice, "iterations"),
        (PolicyTreeSearch, replace(REPORT, iterations=1), (1,), 1, dice, "iterations"),  # and nothing is left besides
        (PolicyTreeSearch, REPORT, (1,), 1, dice, "dead_end"),
        (PolicyTreeSearch, REPORT, (), 1, dice, "dead_end"),
        (PolicyTreeSearch, REPORT, (1, 1), 2, lambda _: None, "dead_end"),
        (BeamSearch, BeamParams(), (1, 1), 2, lambda c: 1.0 / len(c), "no_gain"),
        (BeamSearch, BeamParams(), (1, 1), 2, lambda c: float(len(c)), "dead_end"),
        (BeamSearch, BeamParams(), (5,), 2, dice, "dead_end"),
        (BeamSearch, BeamParams(on_no_gain="continue"), (1, 1), 2, lambda c: 1.0 / len(c), "dead_end"),
        (ExhaustiveSearch, ExhaustiveParams(), (1, 1), 2, dice, "all_scored"),
        (SinglesFill, RankedParams(), (1, 1), 2, dice, "all_scored"),
        (RandomFill, RandomParams(), (1, 1), 2, dice, "all_scored"),
        (RandomFill, RandomParams(), (5,), 2, dice, "all_scored"),
    ],
)
def test_a_finished_search_says_why(make, params, costs, budget, score, stopped):
    assert traced(make, params, candidates(costs), budget, score)[0].stopped == stopped


@pytest.mark.parametrize(
    ("make", "params", "limit"),
    [
        (PolicyTreeSearch, REPORT, 3),  # within the singles
        (PolicyTreeSearch, REPORT, 4),  # with all four of them
        (BeamSearch, BeamParams(), 3),
        (BeamSearch, BeamParams(), 4),
        (ExhaustiveSearch, ExhaustiveParams(), 4),
        (SinglesFill, RankedParams(), 3),
    ],
)
def test_a_search_cut_by_a_pair_limit_is_unfinished_and_says_so_without_asking_on(make, params, limit):
    found, asked = traced(make, params, candidates((1,) * 4), 4, lambda c: float(len(c)), limit)
    assert (len(asked), found.stopped) == (limit, "unfinished")
    told = [node for node in found.nodes if node.asked is not None]
    assert [node.asked for node in told] == list(range(1, limit + 1))
    assert all(node.score is None for node in found.nodes if node.asked is None)


def test_a_draw_that_was_not_scored_is_unfinished():
    search = RandomFill(candidates((1, 1)), 2, RandomParams())
    assert search.why_stopped() == "unfinished"


def test_without_a_tree_the_nodes_are_what_was_asked_in_its_order():
    seen = random_candidates(random.Random(3), 5, order_matters=False)
    found, asked = traced(BeamSearch, BeamParams(width=2), seen, 20, dice)
    assert not found.is_tree
    assert [node.combination for node in found.nodes] == list(asked)
    assert [node.asked for node in found.nodes] == list(range(1, len(asked) + 1))
    assert {(n.parent, n.visits, n.mean_reward, n.forbidden) for n in found.nodes} == {(None, None, None, None)}
    assert all(node.cost == sum(seen.costs[n] for n in node.combination) for node in found.nodes)
