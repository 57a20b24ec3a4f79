"""The pipeline over fakes: what is selected, in whose company, at what cost, and what the plan says of it.

In these tests a token is a word. A chunk of n words costs n + 1 (its number), and the template has 3 words more.
"""

import dataclasses
import functools
import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag_ray.core.fill import SinglesFill
from corag_ray.core.policy_tree import PRESETS, PolicyTreeSearch
from corag_ray.core.ranked import RankedParams
from corag_ray.errors import RowError
from corag_ray.indexing.store import ChunkStore, write_chunks
from corag_ray.pipeline import SEARCHES_IN_FLIGHT, Answerer, Method, Selector
from corag_ray.prompts import seed
from corag_ray.types import Chunk, Evidence, Generation, Question, Score, Span

RANKED = Method("retrieval", functools.partial(SinglesFill, params=RankedParams()), "overlap")
TREE = Method("retrieval", functools.partial(PolicyTreeSearch, params=PRESETS["report"]), "overlap")
METHODS = {"ranked": RANKED, "tree": TREE, "none": Method("none"), "gold": Method("gold")}
TEMPLATE = 3
LETTERS = "abcdefgh"


class WordTokenizer:
    """Counts words; a prompt has `TEMPLATE` more."""

    name = "words"

    def __init__(self, context_window=10_000):
        self.context_window = context_window

    def count(self, texts):
        return [len(text.split()) for text in texts]

    def count_prompts(self, prompts):
        return [len(prompt.split()) + TEMPLATE for prompt in prompts]


class WordSearch:
    """Rows by shared words, ties by row; chunks that share none are not found."""

    def __init__(self, store):
        self.store = store

    def search(self, queries, k):
        return [self._one(set(query.split()), k) for query in queries]

    def _one(self, words, k):
        hits = [(row, float(len(words & set(text.split())))) for row, text in enumerate(self.store.iter_texts())]
        return sorted((hit for hit in hits if hit[1] > 0), key=lambda hit: (-hit[1], hit[0]))[:k]


class Overlap:
    """Covered question words less a little for length: not monotone, and its calls are kept."""

    name, order_sensitive, monotone = "overlap", False, False

    def __init__(self):
        self.prepared = self.calls = 0

    def prepare(self, query, candidates, rows):
        assert len(candidates) == len(rows)
        self.prepared += 1
        return set(query.split()), [chunk.text.split() for chunk in candidates]

    def score(self, pairs):
        self.calls += 1
        return [self._one(*prepared, combination) for prepared, combination in pairs]

    def _one(self, asked, texts, combination):
        words = [word for number in combination for word in texts[number]]
        value = len(asked & set(words)) / len(asked) - len(words) / 200
        return Score(value, max(0.0, value))


class Echo:
    """Answers with the prompt itself and keeps every call."""

    name = "echo"

    def __init__(self):
        self.calls = []

    def generate(self, prompts, max_new_tokens):
        self.calls.append((list(prompts), max_new_tokens))
        return [Generation(f"to: {p}", len(p.split()), 1, "stop") for p in prompts]


def chunks_of(texts):
    return [Chunk(i + 1, f"d{i // 2}", i % 2, 0, len(t), t, len(t.split()) + 1) for i, t in enumerate(texts)]


def store_of(folder, texts):
    write_chunks(folder / "chunks.arrow", chunks_of(texts))
    return ChunkStore.open(folder / "chunks.arrow")


def selector_over(store, **changes):
    parts = {
        "store": store,
        "index_version": "1-abc",
        "first_stage": WordSearch(store),
        "vectors": None,
        "rerankers": {"overlap": Overlap()},
        "tokenizer": WordTokenizer(),
        "prompt": seed,
        "methods": METHODS,
        "num_candidates": 10,
        "budget_tokens": 12,
        "max_new_tokens": 4,
    }
    return Selector(**parts | changes)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Thirty chunks of 1 to 8 random letters."""
    chance = random.Random(1)
    texts = [" ".join(chance.choices(LETTERS, k=chance.randint(1, 8))) for _ in range(30)]
    return store_of(tmp_path_factory.mktemp("store"), texts)


@pytest.fixture
def three(tmp_path):
    """Three chunks that cost 4, 3 and 5."""
    return store_of(tmp_path, ["a x x", "a b", "b c z z"])


def test_choices_say_which_index_they_rest_on_even_where_they_failed(three):
    plans = selector_over(three, index_version="7-fed").select([Question("q", "a"), Question("r", " ")])
    assert [(plan.index_version, plan.error is None) for plan in plans] == [("7-fed", True), ("7-fed", False)]


def told(plan):
    """All of a plan but its times."""
    methods = {
        name: [getattr(m, field.name) for field in dataclasses.fields(m) if field.name != "latency_ms"]
        for name, m in plan.methods.items()
    }
    return plan.question, plan.candidates, methods, str(plan.error)


questions = st.text(alphabet=f"{LETTERS}q ", max_size=24).map(lambda text: Question("q", text))


# --- one worked example -----------------------------------------------------------------------------------------------


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


# --- company ----------------------------------------------------------------------------------------------------------


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


# --- budgets ----------------------------------------------------------------------------------------------------------


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


# --- nothing to select ------------------------------------------------------------------------------------------------


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


# --- gold passages ----------------------------------------------------------------------------------------------------


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


# --- answers ----------------------------------------------------------------------------------------------------------


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


# --- latency ----------------------------------------------------------------------------------------------------------


class Slow:
    """Passes everything on, and sleeps before the named call."""

    def __init__(self, inner, name, seconds):
        self._inner, self._name, self._seconds = inner, name, seconds

    def __getattr__(self, name):
        if name == self._name:
            time.sleep(self._seconds)
        return getattr(self._inner, name)


class Clock:
    """Stands still but for the calls that are said to take time."""

    now_s = 0.0

    def __call__(self):
        return self.now_s

    def takes(self, milliseconds, call):
        def timed(*arguments):
            self.now_s += milliseconds / 1000
            return call(*arguments)

        return timed

    def overlap(self, milliseconds):
        """The reranker, whose every call takes as long."""
        reranker = Overlap()
        reranker.score = self.takes(milliseconds, reranker.score)
        return reranker


@pytest.fixture
def clock(monkeypatch):
    """The only clock there is."""
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


def test_each_method_has_the_stages_it_went_through(store):
    plans = selector_over(store).select([Question("1", "a b")])
    searched, nothing = {"retrieve", "prepare", "search"}, set()
    assert {n: set(m.latency_ms) for n, m in plans[0].methods.items()} == {
        "ranked": searched,
        "tree": searched,
        "none": nothing,
        "gold": nothing,
    }
    Answerer(Echo(), 7).answer(plans)
    assert all("generate" in method.latency_ms for method in plans[0].methods.values())


def test_what_questions_share_is_divided_so_that_the_sum_is_the_time_taken(store):
    asked = [Question("1", "a b"), Question("2", "c"), Question("3", "d e f")]
    started = time.perf_counter()
    plans = selector_over(store, first_stage=Slow(WordSearch(store), "search", 0.03)).select(asked)
    elapsed = (time.perf_counter() - started) * 1000
    shares = [plan.methods["ranked"].latency_ms["retrieve"] for plan in plans]
    assert len(set(shares)) == 1
    assert 30 <= sum(shares) <= elapsed


def test_search_time_is_shared_out_by_pairs_and_adds_up(store, clock):
    asked = [Question("1", "a b"), Question("2", "c"), Question("3", "unheard of")]
    reranker = clock.overlap(10)
    plans = selector_over(store, rerankers={"overlap": reranker}).select(asked)
    searched = [plan.methods[name] for plan in plans for name in ("ranked", "tree")]
    pairs, times = [m.pairs for m in searched], [m.latency_ms["search"] for m in searched]
    assert sum(times) == pytest.approx(10 * reranker.calls)
    assert times == pytest.approx([sum(times) * n / sum(pairs) for n in pairs])
    assert times[-1] == 0.0


def test_a_rerankers_time_is_borne_by_the_searches_that_ask_it_alone(three, clock):
    # One round: each method asks for the three singles, which two of them share, so each reranker is called once.
    methods = {name: dataclasses.replace(RANKED, reranker=name[:4]) for name in ("fast", "slow", "slow too")}
    rerankers = {"fast": clock.overlap(0.03), "slow": clock.overlap(30)}
    [plan] = selector_over(three, methods=methods, rerankers=rerankers).select([Question("q", "a b")])
    assert [method.pairs for method in plan.methods.values()] == [3, 3, 3]
    assert [method.latency_ms["search"] for method in plan.methods.values()] == pytest.approx([0.03, 15, 15])


def test_a_strategys_construction_its_cosines_and_its_answer_count_to_its_search_alone(three, clock):
    def make(candidates, budget_tokens):
        search = SinglesFill(candidates, budget_tokens, RankedParams())
        search.best = clock.takes(7, search.best)
        return search

    own = Method("retrieval", clock.takes(5, make), "overlap", needs_similarity=True)
    vectors = clock.takes(11, lambda rows: np.eye(3, dtype=np.float32)[rows])
    [plan] = selector_over(three, methods={"ranked": RANKED, "own": own}, vectors=vectors).select(
        [Question("q", "a b")]
    )
    assert plan.methods["own"].latency_ms["search"] == pytest.approx(11 + 5 + 7)
    assert plan.methods["ranked"].latency_ms["search"] == 0.0


def test_generation_time_goes_to_prompts_by_their_tokens_and_adds_up(store):
    plans = selector_over(store, methods={"none": Method("none")}).select([Question("1", "a"), Question("2", "a " * 7)])
    started = time.perf_counter()
    Answerer(Slow(Echo(), "generate", 0.03), 7).answer(plans)
    elapsed = (time.perf_counter() - started) * 1000
    short, long = (plan.methods["none"].latency_ms["generate"] for plan in plans)
    assert 30 <= short + long <= elapsed
    assert long / short == pytest.approx((9 + 1) / (3 + 1))  # words of the prompt, and one new token


# --- with the real tokenizer ------------------------------------------------------------------------------------------


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
