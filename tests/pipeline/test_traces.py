"""What the pipeline keeps of a search for explanations: all that was asked with both values, if it is to keep it."""

import functools
from dataclasses import replace

from made_selector import METHODS, RANKED, TREE, Overlap, WordTokenizer, selector_over

from corag_ray.core.policy_tree import PRESETS, PolicyTreeSearch
from corag_ray.pipeline import Method
from corag_ray.types import Question, Score


class Fifth(Overlap):
    """Calibrated values are a fifth of the raw ones, so that they can be told apart."""

    def _one(self, asked, texts, combination):
        raw = super()._one(asked, texts, combination).raw
        return Score(raw, raw / 5)


def chosen(store, methods, **changes):
    changes = {"rerankers": {"overlap": Fifth()}, "budget_tokens": 8, "keep_searches": True} | changes
    [plan] = selector_over(store, methods=methods, **changes).select([Question("q", "a b")])
    return plan.methods


def test_a_kept_search_has_the_trace_of_all_its_pairs_with_both_values(three):
    # The worked example: candidates at costs 3, 4, 5 of values .99, .485, .48; of a budget of 8 the first leaves 5.
    found = chosen(three, {"ranked": RANKED, "tree": TREE})
    singles = [Score(0.99, 0.198), Score(0.485, 0.097), Score(0.48, 0.096)]
    assert [node.score for node in found["ranked"].trace.nodes] == singles
    assert found["ranked"].trace.best == ((0, 1), 0.99)
    trace = found["tree"].trace
    assert trace.is_tree
    assert len(trace.nodes) == found["tree"].pairs + 1
    assert {node.score for node in trace.nodes if len(node.combination) == 1} == set(singles)
    assert (trace.candidates.costs, trace.candidates.priors, trace.budget_tokens) == ((3, 4, 5), (2.0, 1.0, 1.0), 8)
    assert found["tree"].search is not None


def test_the_trace_has_the_budget_that_the_window_left(three):
    # The window of 13 tokens holds 3 of the template, 4 of the question's prompt and 4 of the answer: 2 are left.
    found = chosen(three, {"tree": TREE}, tokenizer=WordTokenizer(13))
    assert found["tree"].trace.budget_tokens == found["tree"].effective_budget_tokens < 8


def test_a_calibrated_search_is_told_and_traced_as_such(three):
    params = replace(PRESETS["report"], reading="calibrated")
    method = Method("retrieval", functools.partial(PolicyTreeSearch, params=params), "overlap")
    trace = chosen(three, {"tree": method})["tree"].trace
    assert trace.reading == "calibrated"
    assert trace.best == ((0,), 0.198)


def test_without_keeping_searches_and_without_a_search_there_is_no_trace(three):
    found = chosen(three, METHODS)
    assert (found["none"].trace, found["gold"].trace) == (None, None)
    found = chosen(three, METHODS, keep_searches=False)
    assert {(choice.trace, choice.search) for choice in found.values()} == {(None, None)}
