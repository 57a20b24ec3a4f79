"""Searches of one question at several budgets: limits, costs, and what is scored twice."""

import pytest

from corag_ray.config import Config
from corag_ray.core.strategy import Candidates
from corag_ray.errors import ConfigError, ProtocolError
from corag_ray.types import Chunk, Question, Score
from jobs.budgets.contestants import MORE_OF_NAIVE, NAIVE, contestants_of, fingerprint_of, plan_of
from jobs.budgets.searching import Query, naive, searched


class Worth:
    """Scores a combination by the worth of its candidates, less a little for each; keeps what it was asked."""

    name, monotone, memoised = "worth", False, False

    def __init__(self, worth, order_sensitive=True):
        self.worth, self.order_sensitive, self.asked = worth, order_sensitive, []

    def prepare(self, query, candidates, rows):
        return [chunk.chunk_id for chunk in candidates]

    def score(self, pairs):
        self.asked += [combination for _, combination in pairs]
        return [Score(self.worth(combination), 0.5) for _, combination in pairs]


def query_of(costs):
    chunks = tuple(Chunk(n, f"d{n}", 0, 0, 4, f"text {n}", cost) for n, cost in enumerate(costs))
    k = len(chunks)
    candidates = Candidates(tuple(costs), tuple(1 / (1 + n) for n in range(k)), tuple(range(k)), (0,) * k)
    return Query(Question("q", "why?"), chunks, tuple(range(k)), candidates)


def numbers(outcome):
    return tuple(chunk.chunk_id for chunk in outcome.selection)


def contestants(preset="report"):
    """By name, with late interaction's limits: which class computes the scores does not matter here."""
    return {one.name: one for one in contestants_of(Config(), ["late_interaction"], preset)}


def test_naive_rag_fills_by_rank_passes_over_what_does_not_fit_and_asks_nothing():
    outcome = naive(query_of([100, 60, 90, 40]), 205)
    assert (numbers(outcome), outcome.pairs) == ((0, 1, 3), 0)
    assert numbers(naive(query_of([100, 60]), 50)) == ()


def test_each_way_searches_as_its_name_says_within_its_budget():
    named, worth = contestants(), {0: 1, 1: 5, 2: 3, 3: 4}
    reranker = Worth(lambda c: sum(worth[n] for n in c) - 3.5 * (len(c) - 1))
    wanted = [(named[f"late_interaction{way}"], budget) for budget in (30, 20) for way in ("", "_greedy", "_ranked")]
    found = searched(query_of([10] * 4), reranker, wanted)
    # Alone 1 is best (5); with 3 it scores 5 + 4 - 3.5 = 5.5, and a third chunk lowers that again (5.5 + 3 - 3.5 = 5).
    # At 20 tokens couples are leaves, so 5.5 is also the highest mean of a node; at 30 the means of others count.
    tree, greedy, ranked, *smaller = map(numbers, found)
    assert len(tree) <= 3 and greedy == (1, 3) and ranked == (1, 3, 2)
    assert set(smaller[0]) == {1, 3} and smaller[1:] == [(1, 3), (1, 3)]
    # Greedy asks for 4 singles, 3 couples and, where they fit, 2 threesomes; `ranked` for the singles.
    assert [one.pairs for one in found[1:3] + found[4:]] == [9, 4, 7, 4]


@pytest.mark.parametrize("order_sensitive", [True, False])
def test_what_one_search_has_had_scored_is_not_computed_again_for_another(order_sensitive):
    named = contestants()
    reranker = Worth(len, order_sensitive)
    wanted = [(one, budget) for budget in (20, 30, 40) for one in named.values() if one.name != NAIVE]
    outcomes = searched(query_of([10] * 6), reranker, wanted)
    assert len(set(reranker.asked)) == len(reranker.asked) < sum(one.pairs for one in outcomes)
    if not order_sensitive:
        assert all(tuple(sorted(combination)) == combination for combination in reranker.asked)


def test_the_limit_of_pairs_ends_a_tree_and_not_the_presets_ten_expansions():
    named = contestants()
    [outcome] = searched(query_of([1] * 60), Worth(lambda c: 0.01 * len(c)), [(named["late_interaction"], 100)])
    assert outcome.pairs == named["late_interaction"].pair_limit == 2000


def test_a_question_of_which_nothing_could_be_scored_has_no_selection_and_is_told():
    named = contestants()
    nothing = Worth(lambda c: float("nan"))
    [outcome] = searched(query_of([10] * 4), nothing, [(named["late_interaction_ranked"], 30)])
    assert (outcome.selection, outcome.unscored, outcome.pairs) == (None, 4, 4)
    [outcome] = searched(query_of([10] * 4), nothing, [(named["late_interaction_ranked"], 9)])
    assert outcome.selection == ()  # nothing fits: no fault of the reranker's


def test_some_combinations_that_could_not_be_scored_are_counted_and_not_chosen():
    named = contestants()
    some = Worth(lambda c: float("nan") if 0 in c else 1.0 - c[0])
    [outcome] = searched(query_of([10] * 4), some, [(named["late_interaction_ranked"], 20)])
    assert (numbers(outcome), outcome.unscored) == ((1, 2), 1)


def test_searches_of_one_reranker_have_one_limit():
    named = contestants()
    with pytest.raises(ProtocolError, match="one limit of pairs"):
        searched(query_of([10]), Worth(len), [(named[NAIVE], 20), (named["late_interaction"], 20)])


def test_rerankers_that_compute_longer_than_they_look_up_get_fewer_pairs_questions_and_budgets():
    made = contestants_of(Config(), ["late_interaction", "query_likelihood"], "report")
    assert [(one.name, one.pair_limit, one.is_slow) for one in made] == [
        ("naive_rag", 0, False),
        ("late_interaction", 2000, False),
        ("late_interaction_greedy", 2000, False),
        ("late_interaction_ranked", 2000, False),
        ("query_likelihood", 210, True),
        ("query_likelihood_greedy", 210, True),
        ("query_likelihood_ranked", 210, True),
    ]
    planned = plan_of(made, [128, 1024], [200])
    budgets = {one.name: [budget for other, budget in planned if other is one] for one in made}
    assert budgets["naive_rag"] == sorted([*MORE_OF_NAIVE, 128, 200, 1024, 1536])
    assert (budgets["late_interaction_greedy"], budgets["query_likelihood"]) == ([128, 1024], [200])


def test_unknown_names_and_two_rows_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="did you mean 'late_interaction'"):
        contestants_of(Config(), ["late_interactoin"], "report")
    with pytest.raises(ConfigError, match="unknown preset"):
        contestants_of(Config(), ["late_interaction"], "mine")
    with pytest.raises(ConfigError, match="two rows would be named 'bm25'"):
        contestants_of(Config(), ["bm25", "bm25"], "report")


def test_the_fingerprint_is_of_method_budget_and_limits_and_of_no_other_method(monkeypatch):
    told = []
    monkeypatch.setattr("jobs.budgets.contestants.run_fingerprint", lambda config, dataset: told.append(config) or "x")
    one = contestants()["late_interaction_greedy"]
    assert fingerprint_of(Config(), None, one, 128) != fingerprint_of(Config(), None, contestants()[NAIVE], 128)
    assert [config.budget_tokens for config in told] == [128, 128]
    assert [list(config.methods) for config in told] == [["late_interaction_greedy"], ["naive_rag"]]
