"""What must hold of every strategy, on 10,000 random cases: budget, distinct chunks, and no influence of company."""

import random

import pytest
from core.scoring import random_candidates, run, score_of

from corag_ray.core.beam import BeamParams, BeamSearch
from corag_ray.core.diverse import CoverageParams, MmrParams, SimilarityPenaltyParams
from corag_ray.core.drive import drive_lockstep
from corag_ray.core.exhaustive import ExhaustiveParams, ExhaustiveSearch
from corag_ray.core.fill import SinglesFill
from corag_ray.core.guided_tree import GuidedParams, GuidedTreeSearch
from corag_ray.core.policy_tree import PRESETS, PolicyTreeSearch
from corag_ray.core.random_fill import RandomFill, RandomParams
from corag_ray.core.ranked import RankedParams
from corag_ray.core.trace import trace
from corag_ray.types import Score

STRATEGIES = {
    "corag": (GuidedTreeSearch, GuidedParams()),
    "corag, narrow": (GuidedTreeSearch, GuidedParams(pairs=40, singles=2, width=2, worth_weight=1.0)),
    "ranked": (SinglesFill, RankedParams()),
    "ranked, stopping": (SinglesFill, RankedParams(on_misfit="stop")),
    "seed": (PolicyTreeSearch, PRESETS["seed"]),
    "report": (PolicyTreeSearch, PRESETS["report"]),
    "carrot": (PolicyTreeSearch, PRESETS["carrot"]),
    "exhaustive": (ExhaustiveSearch, ExhaustiveParams(num_candidates=4, max_chunks=3)),
    "greedy": (BeamSearch, BeamParams(width=1)),
    "beam": (BeamSearch, BeamParams(width=3, on_no_gain="continue")),
    "mmr": (SinglesFill, MmrParams()),
    "coverage": (SinglesFill, CoverageParams()),
    "similarity penalty": (SinglesFill, SimilarityPenaltyParams()),
    "random": (RandomFill, RandomParams()),
}
CASES = 720  # of each of the fourteen: 10,080


def case(seed):
    """Up to 9 candidates and a budget that may fit none or all; the order may matter; some scores are missing."""
    rng = random.Random(seed)
    candidates = random_candidates(rng, rng.randint(0, 9), order_matters=rng.random() < 0.5)
    return candidates, rng.randint(1, 30), rng.choice([0.0, 0.0, 0.3])


@pytest.mark.parametrize("name", STRATEGIES)
def test_within_the_budget_no_chunk_twice_and_nothing_asked_twice(name):
    make, params = STRATEGIES[name]
    chosen = 0
    for seed in range(CASES):
        candidates, budget, missing = case(seed)

        def score(combination, seed=seed, missing=missing, candidates=candidates):
            return score_of(seed, combination, order_matters=candidates.order_matters, missing=missing)

        search = make(candidates, budget, params)
        asked = run(search, score)
        assert len(asked) == len(set(asked))
        if (best := search.best()) is not None:
            chosen += 1
            combination, _ = best
            assert sum(candidates.costs[n] for n in combination) <= budget
            assert len(set(combination)) == len(combination) > 0
        in_parts = make(candidates, budget, params)
        run(in_parts, score, ask_limit=1 + seed % 7)
        assert in_parts.best() == best
    assert chosen > CASES / 2


@pytest.mark.parametrize("name", STRATEGIES)
def test_asks_are_repeatable_and_may_be_told_in_pieces_with_an_answer_at_any_time(name):
    make, params = STRATEGIES[name]
    for seed in range(100):
        candidates, budget, missing = case(seed)
        rng = random.Random(seed)
        whole, pieces = make(candidates, budget, params), make(candidates, budget, params)

        def score(combination, seed=seed, missing=missing, candidates=candidates):
            return score_of(seed, combination, order_matters=candidates.order_matters, missing=missing)

        asked, told = run(whole, score), []
        while part := pieces.ask(limit := rng.randint(1, 9)):
            assert pieces.ask(limit) == part
            part = part[: rng.randint(1, len(part))]
            pieces.tell({combination: score(combination) for combination in part})
            told += part
            combination, _ = pieces.best() or ((), 0.0)
            assert sum(candidates.costs[n] for n in combination) <= budget
        assert (told, pieces.best()) == (asked, whole.best())


def test_the_answer_is_the_same_in_any_company():
    for seed in range(60):
        cases = {name: case(f"{seed} {name}") for name in STRATEGIES}

        def score(name, combination, cases=cases, seed=seed):
            candidates, _, missing = cases[name]
            return score_of((seed, name), combination, order_matters=candidates.order_matters, missing=missing)

        def new(name, cases=cases):
            make, params = STRATEGIES[name]
            candidates, budget, _ = cases[name]
            return make(candidates, budget, params)

        alone = {name: new(name) for name in STRATEGIES}
        for name, search in alone.items():
            run(search, lambda combination, name=name: score(name, combination))
        names = random.Random(seed).sample(list(STRATEGIES), len(STRATEGIES))
        together = [new(name) for name in names]
        drive_lockstep(
            together,
            lambda pairs, names=names: [score(names[number], combination) for number, combination in pairs],
            in_flight=1 + seed % 5,
            ask_limit=1 + seed % 11,
        )
        assert {name: s.best() for name, s in zip(names, together, strict=True)} == {
            name: s.best() for name, s in alone.items()
        }


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_can_be_traced_to_all_that_it_asked_for_and_to_why_it_stopped(name):
    make, params = STRATEGIES[name]
    for seed in range(100):
        candidates, budget, missing = case(seed)

        def score(combination, seed=seed, missing=missing, candidates=candidates):
            return score_of(seed, combination, order_matters=candidates.order_matters, missing=missing)

        search = make(candidates, budget, params)
        told = {c: None if (value := score(c)) is None else Score(value, value) for c in run(search, score)}
        best = search.best()
        found = trace(search, candidates, budget, told)
        asked = [node for node in found.nodes if node.asked is not None]
        assert {node.combination: node.score for node in asked} == told
        assert sorted(node.asked for node in asked) == list(range(1, len(told) + 1))
        assert all(node.parent is None or node.parent < place for place, node in enumerate(found.nodes))
        assert found.stopped != "unfinished"
        assert (found.best, search.best()) == (best, best)
