"""What the pipeline selects and answers: alone and in company, in order, from gold passages, with which score."""

import dataclasses
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_selector import LETTERS, METHODS, RANKED, TREE, Echo, Overlap, questions, selector_over, told

from corag_ray.core.fill import SinglesFill
from corag_ray.core.ranked import RankedParams
from corag_ray.pipeline import SEARCHES_IN_FLIGHT, Answerer, Method
from corag_ray.types import Evidence, Question, Span


def test_choices_say_which_index_they_rest_on_even_where_they_failed(three):
    plans = selector_over(three, index_version="7-fed").select([Question("q", "a"), Question("r", " ")])
    assert [(plan.index_version, plan.error is None) for plan in plans] == [("7-fed", True), ("7-fed", False)]


def test_the_worked_example_fills_by_rank_and_renders_the_passages_in_their_order(three):
    # Question "a b": the first stage finds row 1 (both words), then rows 0 and 2 (one each), so the candidates are
    # 0 = "a b", 1 = "a x x", 2 = "b c z z" at costs 3, 4, 5. Values: 2/2 - 2/200 = .99, 1/2 - 3/200 = .485,
    # 1/2 - 4/200 = .48. Of a budget of 8, candidate 0 leaves 5 and candidate 1 leaves 1.
    [plan] = selector_over(three, methods={"ranked": RANKED}, budget_tokens=8).select([Question("q", "a b")])
    chosen = plan.methods["ranked"]
    assert [c.text for c in plan.candidates] == ["a b", "a x x", "b c z z"]
    assert chosen.selection == plan.candidates[:2]
    assert (chosen.score, chosen.pairs, chosen.reranker, chosen.notes) == (0.99, 3, "overlap", [])
    assert chosen.prompt == "User question: a b\nRelevant information:\n1. a b\n2. a x x\n"
    assert (chosen.effective_budget_tokens, chosen.context_tokens, chosen.prompt_tokens) == (8, 7, 3 + 4 + 2 + 7)


def test_the_tree_search_may_stop_below_the_budget_where_more_is_worse(three):
    # "a b" alone is worth .99; any second chunk adds length and no word.
    [plan] = selector_over(three, methods={"tree": TREE}, budget_tokens=100).select([Question("q", "a b")])
    best = max(plan.methods["tree"].selection, key=lambda c: c.cost)
    assert plan.methods["tree"].score == 0.99
    assert plan.methods["tree"].selection == [best] == [plan.candidates[0]]


@settings(max_examples=40, deadline=None)
@given(asked=st.lists(questions, max_size=8))
def test_a_question_gets_the_same_plan_alone_and_in_company(store, asked):
    selector = selector_over(store)
    together = [told(plan) for plan in selector.select(asked)]
    assert together == [told(selector.select([question])[0]) for question in asked]


def test_a_question_gets_the_same_plan_in_more_company_than_is_in_flight(store):
    chance = random.Random(2)
    asked = [Question(str(n), " ".join(chance.choices(LETTERS, k=chance.randint(1, 6)))) for n in range(45)]
    assert len(asked) * 2 > SEARCHES_IN_FLIGHT  # two searches a question
    selector = selector_over(store)
    together = [told(plan) for plan in selector.select(asked)]
    assert together == [told(selector.select([question])[0]) for question in asked]
    assert [question for question, *_ in together] == asked
    assert len({str(methods) for *_, methods, _ in together}) > 30  # the questions do differ


def test_a_method_chooses_the_same_alone_and_beside_others(store):
    asked = [Question("q", "a b c d")]
    beside = selector_over(store).select(asked)[0].methods
    for name in METHODS:
        alone = selector_over(store, methods={name: METHODS[name]}).select(asked)[0].methods[name]
        assert (alone.selection, alone.prompt, alone.pairs) == (
            beside[name].selection,
            beside[name].prompt,
            beside[name].pairs,
        )


def test_each_choice_says_where_its_candidates_came_from(store):
    [plan] = selector_over(store).select([Question("q", "a b")])
    assert {name: m.source for name, m in plan.methods.items()} == {
        "ranked": "retrieval",
        "tree": "retrieval",
        "none": "none",
        "gold": "gold",
    }


def test_two_methods_share_one_preparation_of_the_query(store):
    reranker = Overlap()
    selector_over(store, rerankers={"overlap": reranker}).select([Question("1", "a b"), Question("2", "a c")])
    assert reranker.prepared == 2


def test_no_questions_give_no_plans(store):
    assert selector_over(store).select([]) == []


def evidence(*texts):
    return tuple(Evidence(Span(f"d{n}", n, n + len(text)), text=text) for n, text in enumerate(texts))


def gold_plan(store, question, **changes):
    return selector_over(store, methods={"gold": Method("gold")}, **changes).select([question])[0].methods["gold"]


def test_gold_passages_fill_the_budget_in_their_order_and_misfits_are_skipped(three):
    question = Question("q", "why", evidence=evidence("three words here", "these are five words yes", "two words"))
    plan = gold_plan(three, question, budget_tokens=8)  # costs 4, 6, 3: the first leaves 4, the last then 1
    assert [(c.doc_id, c.start, c.end, c.text, c.cost) for c in plan.selection] == [
        ("d0", 0, 16, "three words here", 4),
        ("d2", 2, 11, "two words", 3),
    ]
    assert plan.notes == ["1 of 3 gold passages do not fit the budget"]
    assert plan.prompt.endswith("1. three words here\n2. two words\n")
    assert (plan.context_tokens, plan.pairs, plan.score, plan.reranker) == (7, 0, None, None)


def test_gold_passages_that_all_fit_bring_no_note_and_stand_once_each(three):
    twice = evidence("three words here") * 2
    plan = gold_plan(three, Question("q", "why", evidence=twice), budget_tokens=8)
    assert len(plan.selection) == 1
    assert plan.notes == []


def test_a_question_without_evidence_has_no_gold_passages_and_says_so(three):
    plan = gold_plan(three, Question("q", "why"))
    assert (plan.selection, plan.context_tokens) == ([], 0)
    assert plan.notes == ["the data set gives no evidence for this question"]
    assert plan.prompt == "User question: why\n"


def test_each_distinct_prompt_is_written_once_and_every_method_gets_its_own_answer(three):
    plans = selector_over(three, budget_tokens=2).select(
        [Question("1", "a b"), Question("2", ""), Question("3", "a b"), Question("4", "c")]
    )
    generator = Echo()
    answers = Answerer(generator, 7).answer(plans)
    # Nothing fits 2 tokens, so all methods of "a b", of both questions, have one prompt.
    assert generator.calls == [(["User question: a b\n", "User question: c\n"], 7)]
    assert answers[1] == {}
    for plan, answered in zip(plans, answers, strict=True):
        assert {name: a.text for name, a in answered.items()} == {
            name: f"to: {method.prompt}" for name, method in plan.methods.items()
        }
    assert answers[3]["tree"].text == "to: User question: c\n"


def test_answers_are_mapped_back_by_prompt_whatever_the_methods_chose(store):
    plans = selector_over(store).select([Question("1", "a b"), Question("2", "c d e")])
    answers = Answerer(Echo(), 7).answer(plans)
    assert len({a.text for answered in answers for a in answered.values()}) >= 4
    for plan, answered in zip(plans, answers, strict=True):
        assert {n: a.text for n, a in answered.items()} == {n: f"to: {m.prompt}" for n, m in plan.methods.items()}


def test_the_answers_order_is_a_step_after_the_search(store):
    question = Question("q", "a b c d e")
    methods = {"chosen": RANKED, "rank": dataclasses.replace(RANKED, order="rank")}
    [found] = selector_over(store, methods=methods, budget_tokens=30).select([question])
    chosen, by_rank = (found.methods[name].selection for name in methods)
    ranks = {chunk.chunk_id: rank for rank, chunk in enumerate(found.candidates)}
    assert [ranks[chunk.chunk_id] for chunk in by_rank] == sorted(ranks[chunk.chunk_id] for chunk in chosen)
    assert chosen != by_rank


@pytest.mark.parametrize("order", ["chosen", "rank"])
@pytest.mark.parametrize("sensitive", [False, True])
def test_a_score_is_stored_only_where_it_is_that_of_the_selection(three, order, sensitive):
    reranker = Overlap()
    reranker.order_sensitive = sensitive
    methods = {"m": dataclasses.replace(RANKED, order=order)}
    [plan] = selector_over(three, methods=methods, rerankers={"overlap": reranker}).select([Question("q", "a b")])
    assert plan.methods["m"].selection
    assert plan.methods["m"].score == (None if sensitive and order == "rank" else 0.99)  # as in the worked example


def seen_by(store, needs, question="a b c"):
    """The candidates as methods see them that need similarities or not, and how often vectors were fetched."""
    calls, seen = [], []
    # The first is as near to the others as .12349 and .12351.
    matrix = np.array([(1, 0, 0), (0.12349, 0.99235, 0), (0.12351, 0, 0.99234)], dtype=np.float32)

    def vectors(rows):
        calls.append(list(rows))
        return matrix[: len(rows)]

    def watch(candidates, budget_tokens):
        seen.append(candidates)
        return SinglesFill(candidates, budget_tokens, RankedParams())

    methods = {str(n): Method("retrieval", watch, "overlap", needs_similarity=need) for n, need in enumerate(needs)}
    selector_over(store, methods=methods, vectors=vectors).select([Question("q", question)])
    return seen, len(calls)


def test_similarity_is_rounded_computed_once_and_given_to_strategies_that_need_it_and_only_to_them(three):
    seen, fetched = seen_by(three, [True, False, True])
    cosines = ((1.0, 0.123, 0.124), (0.123, 1.0, 0.015), (0.124, 0.015, 1.0))
    assert [candidates.similarity for candidates in seen] == [cosines, (), cosines]
    assert fetched == 1
    assert [candidates.order_matters for candidates in seen] == [Overlap.order_sensitive] * 3
    assert seen_by(three, [False])[1] == 0
    assert seen_by(three, [True], "unheard of")[1] == 0  # no candidate, no vector
