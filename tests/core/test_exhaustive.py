"""CORAG Upper against brute force, and its limit."""

import itertools
import random

import pytest
from core.scoring import random_candidates, run, score_of

from corag_ray.core.exhaustive import ExhaustiveParams, ExhaustiveSearch, num_combinations
from corag_ray.errors import ConfigError


def brute_force(candidates, budget, most, score):
    """Every tuple of distinct candidates, in order of size: the best score, then the lower cost, then the first."""
    arrange = itertools.permutations if candidates.order_matters else itertools.combinations
    best = None
    for size in range(1, most + 1):
        for combination in arrange(range(len(candidates)), size):
            cost = sum(candidates.costs[n] for n in combination)
            value = score(combination)
            if cost <= budget and value is not None and (best is None or (value, -cost) > best[0]):
                best = (value, -cost), combination
    return None if best is None else (best[1], best[0][0])


@pytest.mark.parametrize("count", [6, 8])
@pytest.mark.parametrize("order_matters", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_it_finds_what_brute_force_finds(count, order_matters, seed):
    candidates = random_candidates(random.Random(seed), count, order_matters=order_matters)

    def score(combination):
        return score_of(seed, combination, order_matters=order_matters, missing=0.1)

    search = ExhaustiveSearch(candidates, 20, ExhaustiveParams(num_candidates=count))
    asked = run(search, score, ask_limit=100)
    assert search.best() == brute_force(candidates, 20, 5, score)
    assert len(asked) == len(set(asked))


def test_only_the_first_candidates_are_searched():
    candidates = random_candidates(random.Random(0), 12)
    search = ExhaustiveSearch(candidates, 100, ExhaustiveParams(num_candidates=3, max_chunks=2))
    assert set(run(search, lambda combination: 0.0)) == {(0,), (1,), (2,), *itertools.permutations(range(3), 2)}


def test_counts_by_hand():
    assert num_combinations(4, 2, ordered=True) == 4 + 12
    assert num_combinations(4, 2, ordered=False) == 4 + 6
    assert num_combinations(2, 5, ordered=True) == 2 + 2
    assert (
        num_combinations(2, 10**12, ordered=True) == 2 + 2
    )  # at once: sizes above the candidates are not gone through


def test_more_than_twenty_thousand_are_refused_with_their_number():
    params = ExhaustiveParams(num_candidates=10)  # 10 + 90 + 720 + 5,040 + 30,240
    with pytest.raises(ConfigError, match=r"36,100 combinations, above 20,000: lower num_candidates or max_chunks"):
        ExhaustiveSearch(random_candidates(random.Random(0), 10), 5, params)
    ExhaustiveSearch(random_candidates(random.Random(0), 10, order_matters=False), 5, params)  # 637 sets


def test_bad_parameters_are_refused():
    with pytest.raises(ConfigError, match="max_chunks must be at least 1, not 0"):
        ExhaustiveParams(max_chunks=0)
    with pytest.raises(ConfigError, match="did you mean 'raw'"):
        ExhaustiveParams(reading="row")
