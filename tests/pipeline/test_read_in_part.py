"""What a reranker could not score, or not read at once or in full, is counted and noted with the choice."""

import dataclasses
import functools
import math

import pytest
from made_selector import METHODS, RANKED, TREE, Overlap, selector_over

from corag_ray.core.exhaustive import ExhaustiveParams, ExhaustiveSearch
from corag_ray.models.protocols import WindowedReranker
from corag_ray.types import Question, Score


class Unsure(Overlap):
    """Gives no number for a combination that holds the words of the first candidate."""

    def score(self, pairs):
        found = super().score(pairs)
        return [Score(math.nan, math.nan) if 0 in c else score for (_, c), score in zip(pairs, found, strict=True)]


class Narrow(Overlap):
    """Reads two words of a question and so many words of chunks at once, without a word shared between windows."""

    monotone = memoised = False

    def __init__(self, window):
        super().__init__()
        self.window, self.asked = window, []

    def prepare(self, query, candidates, rows):
        self.question = query.split()
        return super().prepare(" ".join(self.question[:2]), candidates, rows)

    def windows(self, pairs):
        self.asked += [combination for _, combination in pairs]
        return [max(1, -(-sum(len(texts[n]) for n in c) // self.window)) for (_, texts), c in pairs]

    def query_tokens(self, prepared):
        return len(self.question), len(prepared[0])


def chosen(store, reranker, method, question="a b", budget_tokens=12):
    methods, rerankers = {"m": method}, {"overlap": reranker}
    [plan] = selector_over(store, methods=methods, rerankers=rerankers, budget_tokens=budget_tokens).select(
        [Question("q", question)]
    )
    return plan.methods["m"]


def test_pairs_without_a_score_are_counted_by_search_and_noted(three):
    # Candidates: 0 = "a b" at 3, 1 = "a x x" at 4, 2 = "b c z z" at 5; ranked asks for singles.
    ranked = chosen(three, Unsure(), RANKED)
    assert [chunk.text for chunk in ranked.selection] == ["a x x", "b c z z"]
    assert (ranked.pairs, ranked.pairs_unscored) == (3, 1)
    assert ranked.notes == ["pairs that could not be scored, and so not be chosen: 1 of 3"]
    couples = functools.partial(ExhaustiveSearch, params=ExhaustiveParams(num_candidates=3, max_chunks=2))
    upper = chosen(three, Unsure(), dataclasses.replace(TREE, new_strategy=couples))
    assert (upper.pairs, upper.pairs_unscored) == (6, 3)  # sets, since order does not matter: 0, 01, 02
    assert upper.notes == ["pairs that could not be scored, and so not be chosen: 3 of 6"]


def test_where_all_pairs_have_a_score_nothing_is_noted(three):
    plain = chosen(three, Overlap(), RANKED)
    assert (plain.pairs_unscored, plain.selection_windows, plain.question_tokens_cut, plain.notes) == (0, None, 0, [])


def test_a_chosen_combination_that_exceeds_the_window_says_in_how_many_it_was_scored(three):
    # The question is "a c": "a b" and "a x x" hold its first word, "b c z z" its second. The tree's best is one of six
    # words, (.5 + .5 of both words less 6 or 7 words in 200), in two windows of four.
    reranker = Narrow(4)
    tree = chosen(three, reranker, TREE, question="a c")
    assert len(tree.selection) == 2
    assert tree.selection_windows == 2
    assert tree.notes == ["the chosen combination exceeds the reranker's window and was scored in 2 windows"]
    assert len(reranker.asked) == 1  # for the selection alone
    fits = chosen(three, Narrow(6), TREE, question="a c")
    assert (fits.selection_windows, fits.notes) == (1, [])


def test_where_chunks_are_scored_alone_it_is_the_longest_of_them_that_counts(three):
    # All three are chosen, nine words together; the longest has four.
    ranked = chosen(three, Narrow(4), RANKED)
    assert len(ranked.selection) == 3
    assert (ranked.selection_windows, ranked.notes) == (1, [])
    ranked = chosen(three, Narrow(2), RANKED)
    assert ranked.selection_windows == 2
    assert ranked.notes == ["a chosen chunk exceeds the reranker's window and was scored in 2 windows"]


@pytest.mark.parametrize("budget_tokens", [12, 2])
def test_a_question_that_lost_its_end_is_noted_whether_or_not_something_was_chosen(three, budget_tokens):
    ranked = chosen(three, Narrow(9), RANKED, question="a b c d e", budget_tokens=budget_tokens)
    assert ranked.question_tokens_cut == 3
    assert ranked.notes[0] == "the question of 5 tokens exceeds half of the reranker's window and was cut to 2"
    assert len(ranked.notes) == (1 if budget_tokens == 12 else 2)  # nothing fits 2 tokens
    assert ranked.selection_windows == (1 if budget_tokens == 12 else None)


def test_methods_without_a_search_have_no_windows(three):
    methods = {"ranked": dataclasses.replace(RANKED), "none": METHODS["none"], "gold": METHODS["gold"]}
    [plan] = selector_over(three, methods=methods, rerankers={"overlap": Narrow(9)}).select([Question("q", "a b c")])
    assert [plan.methods[name].selection_windows for name in methods] == [1, None, None]
    assert [plan.methods[name].question_tokens_cut for name in methods] == [1, 0, 0]


def test_a_reranker_without_a_window_is_told_from_one_with():
    assert isinstance(Narrow(1), WindowedReranker)
    assert not isinstance(Overlap(), WindowedReranker)
