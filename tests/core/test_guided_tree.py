"""CORAG, ours: its steps worked by hand, brute force, greedy, and what must hold at every moment."""

import itertools
import random
from dataclasses import replace

import pytest
from core.scoring import random_candidates, run, score_of
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from corag_ray.core.beam import BeamParams, BeamSearch
from corag_ray.core.drive import drive_lockstep
from corag_ray.core.guided_tree import GuidedParams, GuidedTreeSearch
from corag_ray.core.strategy import Candidates
from corag_ray.core.tree import depth_first
from corag_ray.errors import ConfigError, ProtocolError

PLAIN = GuidedParams(pairs=10**6, cost_weight=0.0, worth_weight=0.0)
"""Searches the highest score, whatever the cost."""


def candidates(costs, priors=None, order_matters=False, documents=None):
    k = len(costs)
    return Candidates(
        tuple(costs), priors or tuple(range(k, 0, -1)), documents or tuple(range(k)), (0,) * k, (), order_matters
    )


def searched(costs, budget, params, scores, **others):
    """The finished search and what it asked for; what `scores` does not hold scores 0."""
    search = GuidedTreeSearch(candidates(costs, **others), budget, params)
    return search, run(search, scores if callable(scores) else lambda combination: scores.get(combination, 0.0))


def all_sets(costs, budget):
    every = (c for n in range(1, len(costs) + 1) for c in itertools.combinations(range(len(costs)), n))
    return [c for c in every if sum(costs[i] for i in c) <= budget]


SCORES = {(0,): 0.5, (1,): 0.6, (2,): 0.1, (0, 1): 0.7, (1, 2): 0.65, (0, 1, 2): 0.75, (0, 1, 3): 0.72, (0, 2): 0.9}


def test_singles_by_rank_then_a_greedy_path_of_the_most_promising_children_as_long_as_it_rises():
    # Three of five singles: 1 is the best. Behind it 0 added most (place .8), then 2 (0); 3 and 4 were never tried.
    # 0+1 leads; to it 2 can add (.05 at {1}), then 3. 0+1+2 leads with .75; with 3 or 4 it scores 0: the path ends.
    _, asked = searched((1,) * 5, 4, replace(PLAIN, singles=3, width=2), SCORES)
    assert asked[:9] == [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2), (0, 1, 3), (0, 1, 2, 3), (0, 1, 2, 4)]


def test_around_the_best_each_chunk_is_left_out_and_others_take_the_place_of_those_least_missed():
    # The best is 0+1+2 (.75). Without 0 and without 2 it is known; without 1 it is 0+2, new, and the best now (.9).
    search, asked = searched((1,) * 5, 4, replace(PLAIN, singles=3, width=2), SCORES)
    assert asked[9:10] == [(0, 2)]
    # Around 0+2: its parts are singles; 0 (.5) misses 2 less than 2 (.1) misses 0, so {0} is widened first: 0+1 is
    # known, and 3, 4 were never tried; then {2}, to which 1 is known too.
    assert asked[10:14] == [(0, 3), (0, 4), (2, 3), (2, 4)]
    assert search.best() == ((0, 2), 0.9)


def test_swaps_are_tried_for_so_many_chunks_as_the_parameter_says():
    # Without swaps the walk comes next. Root, visited 5 times, allows 3 * sqrt(5) singles: 3 and 4 are asked for.
    _, none = searched((1,) * 5, 4, replace(PLAIN, singles=3, width=2, swaps=0), SCORES)
    assert none[10:12] == [(3,), (4,)]
    _, one = searched((1,) * 5, 4, replace(PLAIN, singles=3, width=2, swaps=1), SCORES)
    assert one[10:14] == [(0, 3), (0, 4), (3,), (4,)]


def test_cost_and_worth_count_in_spreads_of_the_first_singles():
    # Scores .6, .2 deviate by .2. Both priors are alike, so the worths are 1 and exp(-2) = .135.
    # lambda 2: .6 - .2 * 2 * 9/10 = .24 < .2 - .2 * 2 * 1/10 = .16 is false; lambda 4: -.12 < .12 is true.
    def best(**weights):
        params = replace(PLAIN, **weights)
        return searched((9, 1), 9, params, {(0,): 0.6, (1,): 0.2}, priors=(1.0, 1.0))[0].best()

    assert best(cost_weight=2.0) == ((0,), 0.6)
    assert best(cost_weight=4.0) == ((1,), 0.2)
    # The same with scores a hundred times as large.
    scores = {(0,): 60.0, (1,): 20.0}
    for weight, chosen in ((2.0, (0,)), (4.0, (1,))):
        search, _ = searched((9, 1), 9, replace(PLAIN, cost_weight=weight), scores, priors=(1.0, 1.0))
        assert search.best() == (chosen, scores[chosen])
    # Worth 1.5: .6 + .2 * 1.5 = .9 against 0+1 at .5 + .2 * 1.5 * 1.135 = .841; at 20 it is 4.6 against 5.04.
    for weight, chosen in ((1.5, (0,)), (20.0, (0, 1))):
        scores = {(0,): 0.6, (1,): 0.2, (0, 1): 0.5}
        search, _ = searched((1, 1), 2, replace(PLAIN, worth_weight=weight), scores, priors=(1.0, 1.0))
        assert search.best() == (chosen, scores[chosen])


def test_the_path_goes_on_as_long_as_a_chunk_is_worth_more_than_it_costs_where_the_score_bears_it():
    # Singles .8, .5, .5, .2 (spread .212), priors alike: worths 1, exp(-1.41) = .243, .243, exp(-2.83) = .059.
    # With worth 1 and lambda 1 a chunk of cost 2 of 10 must be worth more than .2: 1 and 2 are, 3 is not.
    scores = {(0,): 0.8, (1,): 0.5, (2,): 0.5, (3,): 0.2}
    params = replace(PLAIN, worth_weight=1.0, cost_weight=1.0, width=1)

    def flat(combination):
        return scores.get(combination, 0.8)  # as a score that nothing can be added to

    search, asked = searched((2,) * 4, 10, params, flat, priors=(1.0,) * 4)
    # The path: 0+1 (0 + .212 * (.243 - .2) more), 0+1+2, and 0+1+2+3, which is worth less: it ends.
    assert asked[4:7] == [(0, 1), (0, 1, 2), (0, 1, 2, 3)]
    assert search.best() == ((0, 1, 2), 0.8)


def test_of_equal_values_the_cheaper_is_chosen():
    assert searched((3, 2, 2), 3, PLAIN, {(0,): 0.5, (1,): 0.5, (2,): 0.5})[0].best() == ((1,), 0.5)


def test_an_expansion_hands_on_its_best_score_and_one_visit():
    search, _ = searched((1, 1), 1, PLAIN, {(0,): 0.5, (1,): 0.7})
    assert (search.root.visits, search.root.reward_sum) == (1, 0.7)


def test_the_walk_charges_cost():
    # After the path (0, then 0+1 in vain) 0 has the mean .45, and of 1 (.6) and 2 (.55), which cost 9 and 1 of 20, 1 is
    # the better and with lambda 1, at a spread of .326, the worse: .6 - .147 < .55 - .016. To it 0 added most alone.
    scores = {(0,): 0.9, (1,): 0.6, (2,): 0.55, (3,): 0.0}
    for weight, widened in ((0.0, (1, 2)), (1.0, (0, 2))):
        params = replace(PLAIN, width=1, cost_weight=weight, pairs=6)
        assert searched((1, 9, 1, 1), 20, params, scores)[1][4:] == [(0, 1), widened]


def test_the_scale_of_the_scores_changes_nothing():
    def score(combination):
        return random.Random(f"{sorted(combination)}").randint(0, 64) / 64  # exact at any power of two

    params = GuidedParams(pairs=120, exploration=0.5, cost_weight=0.5, worth_weight=0.5)
    small, large = (searched((1, 2, 3) * 4, 12, params, lambda c, s=s: s * score(c)) for s in (1.0, 1024.0))
    assert small[1] == large[1]
    assert small[0].best()[0] == large[0].best()[0]


def test_orders_are_tried_last_around_the_best_set():
    # Sets stand in document order, here by rank. 0+1 is the best set, and its other order better still.
    scores = {(0,): 0.5, (1,): 0.4, (0, 1): 0.6, (1, 0): 0.7}
    search, asked = searched((1, 1), 2, PLAIN, scores, order_matters=True)
    assert asked == [(0,), (1,), (0, 1), (1, 0)]
    assert search.best() == ((1, 0), 0.7)


def test_when_no_set_is_left_the_orders_of_the_best_sets_come_first():
    scores = {(0, 1): 0.9, (0, 2): 0.7, (1, 2): 0.8}
    _, asked = searched((1,) * 3, 2, PLAIN, scores, order_matters=True)
    # 0+1 leads: in its swaps 1+2 is scored, then its other order; at last the orders of 1+2 (.8) and of 0+2 (.7).
    assert asked[3:] == [(0, 1), (0, 2), (1, 2), (1, 0), (2, 1), (2, 0)]


def test_of_more_than_three_chunks_neighbours_are_exchanged():
    worth = {0: 0.4, 1: 0.3, 2: 0.2, 3: 0.1}

    def score(combination):  # more is better, and so is 3 before 2
        return sum(worth[n] for n in combination) + (0.5 if combination == (0, 1, 3, 2) else 0.0)

    search, asked = searched((1,) * 4, 4, replace(PLAIN, swaps=0), score, order_matters=True)
    path = [(0,), (1,), (2,), (3,), (0, 1), (0, 2), (0, 3), (0, 1, 2), (0, 1, 3), (0, 1, 2, 3)]
    left_out = [(1, 2, 3), (0, 2, 3)]
    exchanged = [(1, 0, 2, 3), (0, 2, 1, 3), (0, 1, 3, 2)]
    around_the_new_best = [(1, 0, 3, 2), (0, 3, 1, 2)]
    assert asked[:17] == path + left_out + exchanged + around_the_new_best
    assert search.best() == ((0, 1, 3, 2), 1.5)


def test_the_papers_figure_is_solved_order_matters_and_more_is_not_better():
    figure = {(0,): 0.3, (2,): 0.8, (0, 2): 0.4, (2, 3): 0.8, (3, 2): 0.9, (0, 1, 3): 0.6, (3,): 0.5}
    search, asked = searched((256,) * 4, 512, GuidedParams(), lambda c: figure.get(c, 0.2), order_matters=True)
    assert search.best() == ((3, 2), 0.9)
    assert len(asked) <= 4 + 4 * 3


def test_exploration_leaves_the_branch_that_pays():
    # After the moves, without exploration the walk keeps to the branch of highest mean; with much it goes to others.
    def score(combination):
        return sum((0.5, 0.3, 0.2, 0.1, 0.05, 0.04)[n] for n in combination) / len(combination)

    keen, broad = (
        searched((1,) * 6, 6, replace(PLAIN, width=1, swaps=0, exploration=c, pairs=20), score)[1] for c in (0.0, 50.0)
    )
    assert keen != broad
    assert sum(0 in c for c in keen) > sum(0 in c for c in broad)


def test_each_number_changes_what_is_asked():
    def score(combination):
        return round(random.Random(f"{sorted(combination)}").random(), 3)

    usual = GuidedParams(pairs=60)
    asked = {}
    for change in ({}, {"pairs": 61}, {"singles": 4}, {"width": 3}, {"swaps": 0}, {"exploration": 30.0}):
        asked[str(change)] = tuple(searched((1,) * 12, 6, replace(usual, **change), score)[1])
    for change in ({"cost_weight": 3.0}, {"worth_weight": 3.0}):
        asked[str(change)] = tuple(searched((1,) * 12, 6, replace(usual, **change), score)[1])
    assert len(set(asked.values())) == len(asked)


def test_the_reading_is_the_one_that_the_drive_tells():
    assert GuidedTreeSearch(candidates((1,)), 1, GuidedParams()).reading == "raw"
    assert GuidedTreeSearch(candidates((1,)), 1, GuidedParams(reading="calibrated")).reading == "calibrated"


# --- What must hold of every search -------------------------------------------------------------------------------
any_params = st.builds(
    GuidedParams,
    pairs=st.sampled_from([1, 7, 40, 10**6]),
    singles=st.integers(1, 8),
    width=st.integers(1, 8),
    exploration=st.sampled_from([0.0, 0.1, 2.4]),
    cost_weight=st.sampled_from([0.0, 0.1, 2.0]),
    worth_weight=st.sampled_from([0.0, 0.04, 2.0]),
    swaps=st.integers(0, 3),
)


@given(st.integers(0, 10**6), any_params, st.integers(0, 30), st.booleans(), st.integers(0, 60))
def test_at_every_moment_no_node_is_over_the_budget_or_holds_a_chunk_twice(seed, params, budget, order_matters, cut):
    rng = random.Random(seed)
    seen = random_candidates(rng, rng.randint(0, 6), order_matters=order_matters)
    search, told = GuidedTreeSearch(seen, budget, params), []
    missing = rng.choice([0.0, 0.3])

    def score(combination):
        return score_of(seed, combination, order_matters=order_matters, missing=missing)

    while (asked := search.ask(limit := rng.randint(1, 9))) and len(told) < cut:
        assert search.ask(limit) == asked and len(asked) <= limit
        search.tell({combination: score(combination) for combination in asked})
        told += asked
        nodes = [node for node in depth_first(search.root) if node.combination]
        assert all(node.cost == sum(seen.costs[n] for n in node.combination) <= budget for node in nodes)
        assert all(len(set(node.combination)) == len(node.combination) for node in nodes)
        assert set(told) <= {node.combination for node in nodes}
        best = search.best()
        assert (best is None) == all(score(c) is None for c in told)
        assert best is None or (best[0] in told and best[1] == score(best[0]))
    assert len(told) == len(set(told)) <= params.pairs


@given(st.integers(0, 10**6), st.integers(0, 5), st.integers(0, 12), st.integers(1, 6), st.integers(1, 6))
def test_without_limits_every_set_is_scored_once_and_the_best_is_brute_forces(seed, k, budget, singles, width):
    costs = tuple(random.Random(seed).randint(1, 4) for _ in range(k))
    search, asked = searched(
        costs, budget, replace(PLAIN, singles=singles, width=width), lambda c: score_of(seed, c, order_matters=False)
    )
    every = all_sets(costs, budget)
    assert sorted(asked) == sorted(every)
    assert (search.best() is None) == (not every)
    if every:
        assert search.best()[1] == max(score_of(seed, c, order_matters=False) for c in every)
        assert search.why_stopped() == "all_scored"


@given(st.integers(0, 10**6), st.integers(0, 4), st.integers(0, 12), st.integers(1, 5))
def test_where_order_matters_every_order_is_scored_in_the_end(seed, k, budget, width):
    costs = tuple(random.Random(seed).randint(1, 4) for _ in range(k))
    search, asked = searched(
        costs, budget, replace(PLAIN, width=width), lambda c: score_of(seed, c), order_matters=True
    )
    every = [order for c in all_sets(costs, budget) for order in itertools.permutations(c)]
    assert sorted(asked) == sorted(every)
    assert not every or search.best()[1] == max(score_of(seed, c) for c in every)


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 24))
def test_with_all_children_tried_the_first_path_is_greedys_so_at_its_pairs_the_score_is_no_lower(seed, k, budget):
    rng = random.Random(seed)
    seen = random_candidates(rng, k, order_matters=False)

    def scored(pairs):
        return [random.Random(f"{seed} {sorted(c)}").random() for _, c in pairs]  # no ties

    greedy = BeamSearch(seen, budget, BeamParams(width=1))
    ours = GuidedTreeSearch(seen, budget, replace(PLAIN, singles=k, width=k))
    [pairs] = drive_lockstep([greedy], scored, in_flight=1)
    [spent] = drive_lockstep([ours], scored, in_flight=1, pair_limit=pairs)
    assert spent <= pairs
    assert (greedy.best() is None) == (ours.best() is None)
    assert greedy.best() is None or ours.best()[1] >= greedy.best()[1]


def test_what_cannot_be_scored_is_neither_chosen_nor_gone_on_from():
    scores = {(0,): None, (1,): 0.5, (2,): None}
    search, asked = searched((1,) * 3, 2, PLAIN, lambda c: scores.get(c, 0.2))
    assert asked == [(0,), (1,), (2,), (0, 1), (1, 2)]
    assert search.best() == ((1,), 0.5)
    assert searched((1,) * 3, 2, PLAIN, lambda c: None)[0].best() is None


def test_why_it_stopped_is_told_once_it_has():
    search = GuidedTreeSearch(candidates((1, 1)), 2, replace(PLAIN, pairs=2))
    assert search.why_stopped() == "unfinished"
    search.tell(dict.fromkeys(search.ask(9), 0.5))
    assert search.why_stopped() == "unfinished"
    assert search.ask(9) == []
    assert search.why_stopped() == "pairs"
    assert searched((), 2, PLAIN, {})[0].why_stopped() == "all_scored"


def test_a_tell_of_something_else_than_was_asked_is_a_protocol_error():
    search = GuidedTreeSearch(candidates((1, 1)), 2, PLAIN)
    search.ask(1)
    with pytest.raises(ProtocolError, match="tell expects"):
        search.tell({(1,): 0.5})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pairs": 0}, "pairs must be at least 1, not 0."),
        ({"singles": 0}, "singles must be at least 1, not 0."),
        ({"width": 0}, "width must be at least 1, not 0."),
        ({"swaps": -1}, "swaps must be at least 0, not -1."),
        ({"exploration": -1.0}, "exploration must be a finite number of at least 0, not -1.0."),
        ({"cost_weight": float("inf")}, "cost_weight must be a finite number of at least 0, not inf."),
        ({"worth_weight": float("nan")}, "worth_weight must be a finite number of at least 0, not nan."),
        ({"reading": "logit"}, "unknown reading 'logit'; "),
    ],
)
def test_wrong_parameters_are_refused_in_one_sentence(change, message):
    with pytest.raises(ConfigError) as error:
        replace(PLAIN, **change)
    assert str(error.value).startswith(message)


def test_pydantic_embeds_the_parameters_and_refuses_unknown_keys():
    assert TypeAdapter(GuidedParams).validate_python({}) == GuidedParams()
    with pytest.raises(ValidationError, match="lambda"):
        TypeAdapter(GuidedParams).validate_python({"lambda": 0.1})
