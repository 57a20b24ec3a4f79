"""Budgets, windows and questions that cannot be answered: what is selected never costs more, and the plan says why."""

import dataclasses
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_selector import (
    RANKED,
    TEMPLATE,
    Echo,
    Overlap,
    WordTokenizer,
    chunks_of,
    questions,
    selector_over,
    store_of,
    told,
)

from corag_ray.core.fill import SinglesFill
from corag_ray.core.ranked import RankedParams
from corag_ray.errors import RowError
from corag_ray.indexing.store import ChunkStore, write_chunks
from corag_ray.pipeline import Answerer, Method
from corag_ray.prompts import seed
from corag_ray.types import Evidence, Question, Score, Span


@settings(max_examples=40, deadline=None)
@given(question=questions.filter(lambda q: q.text.strip()), budget=st.integers(1, 40), window=st.integers(16, 60))
def test_no_context_exceeds_the_effective_budget_and_no_prompt_the_window(store, question, budget, window):
    tokenizer = WordTokenizer(window)
    [plan] = selector_over(store, budget_tokens=budget, tokenizer=tokenizer).select([question])
    frame = 4 + len(question.text.split()) + TEMPLATE  # User question: .. Relevant information:
    if plan.error is not None:
        assert frame + 4 > window
        return
    effective = min(budget, window - frame - 4)
    for method in plan.methods.values():
        assert method.effective_budget_tokens == effective
        assert sum(chunk.cost for chunk in method.selection) <= effective
        assert method.context_tokens <= effective
        assert method.prompt_tokens + 4 <= window
        assert (effective < budget) == any("budget cut" in note for note in method.notes)


class Clipped(WordTokenizer):
    """Its costs are an upper bound only, as with real tokenizers: a text alone counts two more than in a prompt."""

    def count(self, texts):
        return [n + 2 for n in super().count(texts)]


def test_context_tokens_are_recounted_from_the_encoded_prompt_not_added_up(three):
    tokenizer = Clipped()
    question = Question("q", "a b", evidence=(Evidence(Span("d", 0, 3), text="one two three"),))
    [plan] = selector_over(three, tokenizer=tokenizer).select([question])
    [frame] = tokenizer.count_prompts([seed("a b", [], "en")])
    for method in (plan.methods[name] for name in ("ranked", "tree", "gold")):
        assert method.selection
        [encoded] = tokenizer.count_prompts([method.prompt])
        assert method.prompt_tokens == encoded
        assert method.context_tokens == encoded - frame
    assert plan.methods["gold"].context_tokens == 4 < plan.methods["gold"].selection[0].cost == 6
    assert plan.methods["none"].context_tokens == 0


def test_the_budget_is_cut_to_what_the_window_leaves_and_the_plan_says_so(three):
    # Frame 3 + 4 + 2 = 9 tokens, 4 for the answer: of 20 are left 7.
    [plan] = selector_over(three, tokenizer=WordTokenizer(20)).select([Question("q", "a b")])
    for method in plan.methods.values():
        assert method.effective_budget_tokens == 7
        assert any("from 12 to" in note and "7 tokens" in note for note in method.notes)
    assert sum(chunk.cost for chunk in plan.methods["ranked"].selection) == 7
    [plan] = selector_over(three, tokenizer=WordTokenizer(25)).select([Question("q", "a b")])
    assert plan.methods["ranked"].effective_budget_tokens == 12
    assert plan.methods["ranked"].notes == []


def test_a_question_longer_than_the_window_is_an_error_of_its_own_and_the_others_go_on(store):
    selector = selector_over(store, tokenizer=WordTokenizer(30))
    long = Question("long", "a " * 40)
    fine = [Question("1", "a b"), Question("2", "c d")]
    first, failed, second = selector.select([fine[0], long, fine[1]])
    assert isinstance(failed.error, RowError)
    assert "47 tokens" in str(failed.error)
    assert "30" in str(failed.error)
    assert (failed.methods, failed.candidates) == ({}, [])
    assert [told(first), told(second)] == [told(selector.select([question])[0]) for question in fine]
    assert first.methods["ranked"].selection


def fill_without_bounds(candidates, budget_tokens):
    """A search that ignores its budget."""
    return SinglesFill(candidates, 10**6, RankedParams())


def test_a_prompt_beyond_the_window_is_an_error_of_its_own_and_the_others_go_on(three):
    methods = {"wild": Method("retrieval", fill_without_bounds, "overlap")}
    selector = selector_over(three, methods=methods, tokenizer=WordTokenizer(24))
    # Frame 9, three chunks of 12 together, 4 for the answer: 25 of 24. "c" finds the last chunk alone: 8 + 5 + 4.
    failed, fine = selector.select([Question("1", "a b"), Question("2", "c")])
    assert isinstance(failed.error, RowError)
    assert str(failed.error).startswith("a prompt of 21 tokens and 4 for the answer exceed the generator's 24: ")
    assert fine.error is None
    assert [chunk.text for chunk in fine.methods["wild"].selection] == ["b c z z"]
    [fits] = selector_over(three, methods=methods, tokenizer=WordTokenizer(25)).select([Question("1", "a b")])
    assert fits.error is None
    answered = Answerer(Echo(), 4).answer([failed, fine])
    assert [set(answers) for answers in answered] == [set(), {"wild"}]


class Digits(WordTokenizer):
    """Every digit is a token, and every word without one."""

    def count(self, texts):
        return [sum(max(1, sum(map(str.isdigit, word))) for word in text.split()) for text in texts]

    def count_prompts(self, prompts):
        return [count + TEMPLATE for count in self.count(prompts)]


@pytest.mark.parametrize(("num_candidates", "extra"), [(10, 0), (99, 0), (100, 1), (1000, 2)])
def test_costs_get_what_a_number_beyond_99_can_bring(three, num_candidates, extra):
    seen = []

    def watching(candidates, budget_tokens):
        seen.append(candidates.costs)
        return SinglesFill(candidates, budget_tokens, RankedParams())

    selector = selector_over(
        three,
        tokenizer=Digits(),
        num_candidates=num_candidates,
        budget_tokens=8,
        methods={"watched": Method("retrieval", watching, "overlap")},
    )
    [plan] = selector.select([Question("q", "a b")])
    assert seen == [(3 + extra, 4 + extra, 5 + extra)]
    assert [chunk.cost for chunk in plan.candidates] == [3, 4, 5]  # as the index counted them
    # Of 8 tokens, 3 + 4 fit, 4 + 5 do not.
    assert len(plan.methods["watched"].selection) == (2 if extra == 0 else 1)


def test_a_selections_costs_hold_what_numbers_beyond_99_bring_and_bound_its_context(tmp_path):
    # "99. a" counts as 3 tokens. In the prompt stand 9 numbers of one digit, 90 of two, 21 of three, and 120 words.
    write_chunks(tmp_path / "c.arrow", [dataclasses.replace(chunk, cost=3) for chunk in chunks_of(["a"] * 120)])
    store = ChunkStore.open(tmp_path / "c.arrow")
    parts = {"tokenizer": Digits(), "num_candidates": 200, "budget_tokens": 480, "methods": {"ranked": RANKED}}
    [plan] = selector_over(store, **parts).select([Question("q", "a")])
    assert [chunk.cost for chunk in plan.candidates] == [3] * 120
    assert [chunk.cost for chunk in plan.methods["ranked"].selection] == [4] * 120
    assert plan.methods["ranked"].context_tokens == 9 + 90 * 2 + 21 * 3 + 120 == 372


@settings(max_examples=40, deadline=None)
@given(passages=st.integers(1, 200), budget=st.integers(1, 700))
@example(passages=120, budget=330)  # at 3 tokens a passage 110 would be taken, which have 9 * 2 + 90 * 3 + 11 * 4 = 332
def test_gold_passages_keep_the_budget_however_many_they_are(store, passages, budget):
    evidence = tuple(Evidence(Span("d", i, i + 1), text="w") for i in range(passages))
    selector = selector_over(store, tokenizer=Digits(), budget_tokens=budget, methods={"gold": Method("gold")})
    [plan] = selector.select([Question("q", "a", evidence=evidence)])
    gold = plan.methods["gold"]
    cost = 3 if passages <= 99 else 4
    assert [chunk.cost for chunk in gold.selection] == [cost] * min(passages, budget // cost)
    assert gold.context_tokens <= cost * len(gold.selection) <= budget


def test_the_longest_question_that_fits_is_answered_without_context(three):
    [fits] = selector_over(three, tokenizer=WordTokenizer(13)).select([Question("q", "a b")])  # 9 + 4
    [fails] = selector_over(three, tokenizer=WordTokenizer(12)).select([Question("q", "a b")])
    assert fits.error is None
    assert fits.methods["ranked"].effective_budget_tokens == 0
    assert fits.methods["ranked"].selection == []
    assert isinstance(fails.error, RowError)


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_an_empty_question_is_an_error_of_its_own(store, text):
    empty, fine = selector_over(store).select([Question("0", text), Question("1", "a b")])
    assert isinstance(empty.error, RowError)
    assert "empty" in str(empty.error)
    assert fine.error is None
    assert fine.methods["ranked"].selection
    [alone] = selector_over(store).select([Question("0", text)])
    assert str(alone.error) == str(empty.error)


@pytest.mark.parametrize("text", ["\ud83d", "what is \udc00 this", "茶 \udcff"])
def test_half_of_a_character_is_an_error_of_its_own(store, text):
    broken, fine = selector_over(store).select([Question("0", text), Question("1", "a b 茶 👩‍🚀")])
    assert isinstance(broken.error, RowError)
    assert "lone surrogate" in str(broken.error)
    assert str(broken.error).isascii()
    assert fine.error is None
    assert fine.methods["ranked"].selection


def assert_answered_without_context(plan, note):
    for name in ("ranked", "tree"):
        method = plan.methods[name]
        assert (method.selection, method.score, method.context_tokens) == ([], None, 0)
        assert [n for n in method.notes if note in n]
        assert method.prompt == plan.methods["none"].prompt == f"User question: {plan.question.text}\n"


def test_a_budget_below_every_chunk_selects_nothing_and_says_so(three):
    [plan] = selector_over(three, budget_tokens=2).select([Question("q", "a b")])
    assert_answered_without_context(plan, "no candidate fits 2 tokens, the cheapest has 3")
    assert plan.candidates


def test_without_candidates_the_question_is_answered_without_context(three):
    [plan] = selector_over(three).select([Question("q", "unheard of")])
    assert_answered_without_context(plan, "no candidate was found")
    assert plan.candidates == []
    assert plan.methods["ranked"].pairs == 0


def test_candidates_without_a_score_are_not_chosen_and_the_plan_says_so(three):
    class Broken(Overlap):
        def score(self, pairs):
            return [Score(float("nan"), float("nan")) for _ in pairs]

    [plan] = selector_over(three, rerankers={"overlap": Broken()}).select([Question("q", "a b")])
    assert_answered_without_context(plan, "no candidate could be scored")


def test_a_corpus_of_one_chunk_gives_that_chunk(tmp_path):
    [plan] = selector_over(store_of(tmp_path, ["a b c"])).select([Question("q", "a b")])
    for name in ("ranked", "tree"):
        assert [chunk.text for chunk in plan.methods[name].selection] == ["a b c"]
        assert plan.methods[name].pairs == 1


def test_at_most_the_wanted_number_of_candidates_is_asked_for(store):
    [plan] = selector_over(store, num_candidates=3).select([Question("q", "a b c")])
    assert len(plan.candidates) == 3
    assert plan.methods["ranked"].pairs == 3


@pytest.mark.models
def test_costs_bound_the_encoded_context_from_above_with_the_real_tokenizer():
    from corag_ray.build import build_tokenizer
    from corag_ray.config import Config
    from corag_ray.datasets.load import load_dataset
    from corag_ray.indexing.chunking import Chunking, chunk_documents

    tokenizer = build_tokenizer(Config())
    documents = load_dataset("sample").documents[:12]
    chance = random.Random(3)
    for size in (7, 64):
        chunks = list(chunk_documents(documents, Chunking(size_tokens=size), tokenizer))
        for language in ("en", "zh", "es"):
            picks = [chance.sample(chunks, chance.randint(1, min(60, len(chunks)))) for _ in range(8)]
            prompts = [seed("What is it?", [chunk.text for chunk in pick], language) for pick in picks]
            [frame, *encoded] = tokenizer.count_prompts([seed("What is it?", [], language), *prompts])
            for pick, tokens in zip(picks, encoded, strict=True):
                assert 0 < tokens - frame <= sum(chunk.cost for chunk in pick)


def test_a_prompt_that_cannot_be_answered_fails_its_question_alone(three):
    class Choosy(Echo):
        def generate(self, prompts, max_new_tokens):
            return [
                RowError("refused") if "b c" in p else a
                for p, a in zip(prompts, super().generate(prompts, 1), strict=True)
            ]

    batch = selector_over(three, methods={"none": Method("none")}).select([Question("q1", "a"), Question("q2", "b c")])
    answers = Answerer(Choosy(), 4).answer(batch)
    assert [list(answer) for answer in answers] == [["none"], []]
    assert [str(choices.error) for choices in batch] == ["None", "refused"]
