"""Redundancy-aware filling, worked by hand on four candidates of which 0 and 1 say nearly the same."""

import random

import pytest
from core.scoring import random_candidates, run

from corag_ray.core.diverse import CoverageParams, MmrParams, SimilarityPenaltyParams
from corag_ray.core.fill import SinglesFill
from corag_ray.core.strategy import Candidates
from corag_ray.errors import ConfigError, ProtocolError

RELEVANCE = (0.9, 0.8, 0.6, 0.2)
SIMILARITY = ((1.0, 0.9, 0.1, 0.0), (0.9, 1.0, 0.2, 0.0), (0.1, 0.2, 1.0, 0.3), (0.0, 0.0, 0.3, 1.0))


def chosen(params, budget=2, costs=(1, 1, 1, 1), relevance=RELEVANCE):
    zeros = (0,) * 4
    search = SinglesFill(Candidates(costs, (0.0,) * 4, zeros, zeros, SIMILARITY), budget, params)
    assert run(search, lambda combination: relevance[combination[0]]) == [(0,), (1,), (2,), (3,)]
    return search.best()


def test_mmr_passes_over_the_near_duplicate():
    # after 0: 1 is worth .5*.8 - .5*.9 = -.05, 2 is worth .5*.6 - .5*.1 = .25, 3 is worth .1
    assert chosen(MmrParams(weight=0.5)) == ((0, 2), 0.9)
    # then 3: .1 - .5*.3 = -.05, 1: .4 - .45 = -.05: a tie goes to the more relevant
    assert chosen(MmrParams(weight=0.5), budget=3) == ((0, 2, 1), 0.9)


def test_mmr_rewards_what_is_opposed_to_all_chosen():
    # after 0: 1 is worth .5*.5 + .5*.8 = .65, 2 is worth .5*.55 - 0 = .275
    similarity = ((1.0, -0.8, 0.0), (-0.8, 1.0, 0.0), (0.0, 0.0, 1.0))
    search = SinglesFill(Candidates((1,) * 3, (0.0,) * 3, (0,) * 3, (0,) * 3, similarity), 2, MmrParams(weight=0.5))
    run(search, lambda combination: (0.9, 0.5, 0.55)[combination[0]])
    assert search.best() == ((0, 1), 0.9)


def test_mmr_of_weight_one_is_the_ranking():
    assert chosen(MmrParams(weight=1.0), budget=3) == ((0, 1, 2), 0.9)


def test_the_similarity_penalty_ends_before_a_chunk_that_costs_more_than_it_brings():
    # after 0: 1 is worth .8 - .9 = -.1, 2 is worth .6 - .1 = .5, then 3: .2 - .3 = -.1, 1: .8 - 1.1 = -.3
    assert chosen(SimilarityPenaltyParams(penalty=1.0), budget=4) == ((0, 2), 0.9)
    assert chosen(SimilarityPenaltyParams(penalty=0.0), budget=4) == ((0, 1, 2, 3), 0.9)


def test_coverage_takes_the_chunk_that_stands_for_most_and_then_what_is_uncovered():
    # alone: 0 covers .9 + .72 + .06 = 1.68; 1 covers .81 + .8 + .12 = 1.73; 2: .09 + .16 + .6 + .06 = .91; 3: .38
    # after 1: 0 brings .9*.1 = .09; 2 brings .6*.8 + .2*.3 = .54; 3 brings .6*.1 + .2 = .26
    assert chosen(CoverageParams()) == ((1, 2), 0.8)


def test_coverage_prefers_the_best_single_where_the_cheap_start_was_worth_less():
    # per token 3 leads (.38 against 1.73/10), then nothing else fits 10 tokens: 1 alone is worth more
    assert chosen(CoverageParams(), budget=10, costs=(10, 10, 10, 1)) == ((1,), 0.8)
    assert chosen(CoverageParams(cost_power=0.0), budget=10, costs=(10, 10, 10, 1)) == ((1,), 0.8)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_coverage_is_worth_what_the_published_listing_finds_from_the_sets_values_alone(power):
    for seed in range(100):
        rng = random.Random(seed)
        candidates, budget = random_candidates(rng, 6), rng.randint(3, 25)
        costs, relevance = candidates.costs, [rng.random() for _ in range(6)]

        def worth(chosen, candidates=candidates, relevance=relevance):
            nearest = (max((candidates.similarity[n][other] for n in chosen), default=0.0) for other in range(6))
            return sum(weight * max(near, 0.0) for weight, near in zip(relevance, nearest, strict=True))

        picked, left = [], set(range(6))
        while left:  # Lin and Bilmes's algorithm 1: the best ratio of all, taken if it fits, dropped if not
            best = max(left, key=lambda n: (worth([*picked, n]) - worth(picked)) / costs[n] ** power)
            left.remove(best)
            if sum(costs[n] for n in [*picked, best]) <= budget:
                picked.append(best)
        singles = [[n] for n in range(6) if costs[n] <= budget]
        search = SinglesFill(candidates, budget, CoverageParams(cost_power=power))
        run(search, lambda combination, relevance=relevance: relevance[combination[0]])
        chosen, _ = search.best() or ((), 0.0)
        assert worth(chosen) == pytest.approx(max(map(worth, [picked, *singles])))


@pytest.mark.parametrize("params", [MmrParams(), CoverageParams(), SimilarityPenaltyParams()])
def test_nothing_scored_or_nothing_fitting_chooses_nothing(params):
    assert chosen(params, relevance=(None,) * 4) is None
    assert chosen(params, budget=1, costs=(2, 2, 2, 2)) is None


def test_bad_parameters_are_refused():
    with pytest.raises(ConfigError, match=r"weight must lie in 0\.\.1"):
        MmrParams(weight=1.5)
    with pytest.raises(ConfigError, match="penalty must be a finite number"):
        SimilarityPenaltyParams(penalty=float("nan"))
    for power in (-1, 200, float("nan")):  # 100 tokens to the power of 200 is no float
        with pytest.raises(ConfigError, match=r"cost_power must lie in 0\.\.10"):
            CoverageParams(cost_power=power)


def test_scores_that_may_lie_below_zero_are_refused_where_relevances_are_set_against_zero():
    for make in (CoverageParams, SimilarityPenaltyParams):
        with pytest.raises(ConfigError, match=r"^reading must be calibrated, not raw: [^\n]*\.$"):
            make(reading="raw")
        with pytest.raises(ConfigError, match="unknown reading 'rw'"):
            make(reading="rw")
    assert MmrParams(reading="raw").reading == "raw"  # it compares values, and sets none against 0


def test_candidates_without_similarities_are_refused():
    with pytest.raises(ProtocolError, match=r"needs Candidates\.similarity of all 2 candidates, not of 0"):
        SinglesFill(Candidates((1, 1), (0.0, 0.0), (0, 0), (0, 0)), 2, MmrParams())
