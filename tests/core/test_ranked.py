"""NaiveRAG: rank the singles, fill the budget."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag_ray.core.fill import SinglesFill
from corag_ray.core.ranked import RankedParams
from corag_ray.core.strategy import Candidates
from corag_ray.errors import ConfigError, ProtocolError


def fill(costs, budget, scores, limit=512, **choices):
    zeros = (0,) * len(costs)
    search = SinglesFill(Candidates(tuple(costs), (0.0,) * len(costs), zeros, zeros), budget, RankedParams(**choices))
    while asked := search.ask(limit):
        assert search.ask(limit) == asked
        search.tell({single: scores[single[0]] for single in asked})
    return search


def test_chunks_stand_by_falling_score_and_ties_by_candidate_number():
    assert fill([1, 1, 1, 1], 4, [0.2, 0.9, 0.2, 0.5]).best() == ((1, 3, 0, 2), 0.9)


def test_a_misfit_is_skipped_or_stops_the_filling():
    costs, scores = [2, 6, 2, 1], [0.9, 0.8, 0.7, 0.6]  # after 0 (2 of 5 tokens) candidate 1 no longer fits
    assert fill(costs, 5, scores).best() == ((0, 2, 3), 0.9)
    assert fill(costs, 5, scores, on_misfit="skip").best() == ((0, 2, 3), 0.9)
    assert fill(costs, 5, scores, on_misfit="stop").best() == ((0,), 0.9)


def test_the_score_is_that_of_the_first_chunk_chosen_not_of_a_misfit():
    assert fill([9, 2], 5, [0.9, 0.4]).best() == ((1,), 0.4)


def test_a_candidate_without_score_is_passed_over_even_when_misfits_stop():
    assert fill([1, 1], 2, [None, 0.4], on_misfit="stop").best() == ((1,), 0.4)


@pytest.mark.parametrize(
    ("costs", "budget", "scores"), [([], 5, []), ([6], 5, [0.9]), ([1], 5, [None]), ([1], 0, [0.9])]
)
def test_nothing_that_fits_and_has_a_score_is_no_answer(costs, budget, scores):
    assert fill(costs, budget, scores).best() is None


def test_a_search_cut_by_a_deadline_answers_from_what_was_told():
    search = SinglesFill(Candidates((1, 1), (0.0, 0.0), (0, 0), (0, 0)), 2, RankedParams())
    assert search.ask(2) == [(0,), (1,)]
    search.tell({(0,): 0.3})
    assert search.best() == ((0,), 0.3)
    assert search.ask(2) == [(1,)]


@pytest.mark.parametrize("scores", [{(1,): 0.1}, {(0,): 0.1, (7,): 0.2}, {(0,): 0.1, (1,): 0.2, (2,): 0.3}])
def test_a_tell_of_something_else_than_was_asked_is_a_protocol_error(scores):
    search = SinglesFill(Candidates((1, 1, 1), (0.0,) * 3, (0,) * 3, (0,) * 3), 2, RankedParams())
    search.ask(2)
    with pytest.raises(ProtocolError, match="tell expects"):
        search.tell(scores)


def test_unknown_choices_are_refused():
    with pytest.raises(ConfigError, match="did you mean 'skip'"):
        RankedParams(on_misfit="skp")
    with pytest.raises(ConfigError, match="unknown reading"):
        RankedParams(reading="logit")


@given(
    st.lists(st.tuples(st.integers(1, 6), st.one_of(st.none(), st.integers(0, 4).map(float))), max_size=8),
    st.integers(0, 20),
    st.sampled_from(["skip", "stop"]),
    st.sampled_from([1, 2, 7, 512]),
)
def test_the_budget_holds_no_candidate_comes_twice_and_the_limit_changes_nothing(rows, budget, on_misfit, limit):
    costs, scores = [cost for cost, _ in rows], [score for _, score in rows]
    best = fill(costs, budget, scores, limit, on_misfit=on_misfit).best()
    assert best == fill(costs, budget, scores, on_misfit=on_misfit).best()
    if best is None:
        return
    assert sum(costs[number] for number in best[0]) <= budget
    assert len(set(best[0])) == len(best[0])
    assert all(scores[number] is not None for number in best[0])
    assert best[1] == max(scores[number] for number in best[0])
