"""Beam search and greedy forward selection, worked by hand."""

import pytest
from core.scoring import run

from corag_ray.core.beam import BeamParams, BeamSearch
from corag_ray.core.strategy import Candidates
from corag_ray.errors import ConfigError

SCORES = {(0,): 0.5, (1,): 0.6, (2,): 0.1, (1, 0): 0.6, (1, 2): 0.4, (0, 1): 0.2, (0, 2): 0.9, (0, 2, 1): 0.95}


def candidates(costs, **others):
    zeros = (0,) * len(costs)
    return Candidates(tuple(costs), (0.0,) * len(costs), zeros, zeros, **others)


def search(budget=3, costs=(1, 1, 1), order_matters=True, **params):
    beam = BeamSearch(candidates(costs, order_matters=order_matters), budget, BeamParams(**params))
    return beam, run(beam, lambda combination: SCORES.get(combination, 0.0))


def test_greedy_follows_the_best_single_and_stops_without_a_gain():
    # 1 leads with .6; of (1,0) .6 and (1,2) .4 none is above .6, so it stops: the better (0,2) is never seen.
    beam, asked = search(width=1)
    assert asked == [(0,), (1,), (2,), (1, 0), (1, 2)]
    assert beam.best() == ((1,), 0.6)


def test_going_on_without_a_gain_reaches_longer_combinations():
    _, asked = search(width=1, on_no_gain="continue")
    assert asked[5:] == [(1, 0, 2)]


def test_a_wider_beam_keeps_the_second_best_and_finds_its_children():
    beam, asked = search(width=2)
    assert asked[3:7] == [(1, 0), (1, 2), (0, 1), (0, 2)]
    assert beam.best() == ((0, 2, 1), 0.95)


def test_ties_go_to_the_cheaper_then_to_the_first():
    beam = BeamSearch(candidates((3, 2, 2)), 3, BeamParams(width=3))
    run(beam, lambda combination: 0.5)
    assert beam.best() == ((1,), 0.5)


def test_of_equal_scores_the_first_asked_are_kept():
    beam = BeamSearch(candidates((1, 1, 1)), 3, BeamParams(width=1, on_no_gain="continue"))
    assert run(beam, lambda combination: 0.5) == [(0,), (1,), (2,), (0, 1), (0, 2), (0, 1, 2)]


def test_a_set_is_scored_once_when_order_does_not_matter():
    _, asked = search(width=3, order_matters=False, on_no_gain="continue")
    assert asked == [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)]


def test_what_cannot_be_scored_is_neither_kept_nor_chosen():
    beam = BeamSearch(candidates((1, 1)), 2, BeamParams(width=2))
    asked = run(beam, lambda combination: None)
    assert (asked, beam.best()) == ([(0,), (1,)], None)


def test_bad_parameters_are_refused():
    with pytest.raises(ConfigError, match="width must be at least 1"):
        BeamParams(width=0)
    with pytest.raises(ConfigError, match="did you mean 'stop'"):
        BeamParams(on_no_gain="stopp")
