"""Online selection: the batch pipeline's choices, ended in time, and answered for when a part does not."""

import asyncio
import dataclasses
import random

import pytest
from fake_parts import CONFIG, FakePool, Overlap, WordTokenizer, asked, chunks_of, selector_over
from hypothesis import given, settings
from hypothesis import strategies as st

from corag_ray.build import build_method
from corag_ray.config import PlainStrategy
from corag_ray.errors import ConfigError, RowError, UnavailableError
from corag_ray.indexing.store import ChunkStore, write_chunks
from corag_ray.models.agent import Configuration
from corag_ray.pipeline import Selector
from corag_ray.prompts import seed
from corag_ray.types import Question

THREE = ["a x x", "a b", "b c z z"]
LETTERS = "abcdefgh"


def select(selector, request, tell=lambda stage: None):
    return asyncio.run(selector.select(request, tell))


@pytest.fixture(scope="module")
def thirty():
    chance = random.Random(1)
    return [" ".join(chance.choices(LETTERS, k=chance.randint(1, 8))) for _ in range(30)]


@pytest.fixture(scope="module")
def store(tmp_path_factory, thirty):
    path = tmp_path_factory.mktemp("store") / "chunks.arrow"
    write_chunks(path, chunks_of(thirty))
    return ChunkStore.open(path)


class BatchSearch:
    """The first stage of `FakeParts`."""

    def __init__(self, texts):
        self.texts = texts

    def search(self, queries, k):
        from fake_parts import FakeParts

        parts = FakeParts(self.texts)
        found = [asyncio.run(parts.retrieve(query, None, k, False, 0.0)) for query in queries]
        return [list(zip(one.rows, one.scores, strict=True)) for one in found]


class BatchOverlap(Overlap):
    name, monotone = "overlap", False

    def prepare(self, query, candidates, rows):
        return super().prepare(query, candidates)


def batch_choice(store, texts, name, question, budget):
    methods = {name: build_method(CONFIG.methods[name], 0)}
    selector = Selector(
        store=store,
        index_version="1-abc",
        first_stage=BatchSearch(texts),
        vectors=None,
        rerankers={"overlap": BatchOverlap()},
        tokenizer=WordTokenizer(),
        prompt=seed,
        methods=methods,
        num_candidates=10,
        budget_tokens=budget,
        max_new_tokens=4,
        keep_searches=True,
    )
    [choices] = selector.select([Question("q", question)])
    return choices.methods[name]


def told(choice):
    """All but times."""
    return {
        f.name: getattr(choice, f.name) for f in dataclasses.fields(choice) if f.name not in ("latency_ms", "search")
    }


@settings(max_examples=30, deadline=None)
@given(
    question=st.text(alphabet=f"{LETTERS} ", min_size=1, max_size=16).filter(str.strip),
    budget=st.integers(1, 30),
    method=st.sampled_from(["ranked", "corag"]),
)
def test_a_request_is_answered_and_explained_as_the_batch_pipeline_would(store, thirty, question, budget, method):
    selected = select(selector_over(thirty), asked(question, budget, method=method, explain=True))
    assert selected.choice.trace is not None
    assert told(selected.choice) == told(batch_choice(store, thirty, method, question, budget))
    assert (selected.stopped_by, selected.degraded, selected.index_version) == ("finished", (), "1-abc")


def test_an_explained_request_carries_the_settings_that_it_was_searched_with_and_another_nothing():
    strategy = PlainStrategy(kind="beam", changes={"width": 2})
    explained = select(selector_over(THREE), asked("a b", 8, method="corag", strategy=strategy, explain=True))
    told = {key: explained.settings[key] for key in ("method", "budget", "reranker", "strategy", "width")}
    assert told == {"method": "corag", "budget": "8 tokens", "reranker": "overlap", "strategy": "beam", "width": "2"}
    assert not explained.choice.trace.is_tree
    plain = select(selector_over(THREE), asked("a b", 8))
    assert (plain.settings, plain.choice.trace) == ({}, None)


def test_stages_are_told_as_they_are_done():
    stages = []
    selected = select(selector_over(THREE), asked("a b"), stages.append)
    assert [(stage.name, dict(stage.facts)) for stage in stages] == [
        ("configured", {"method": "corag", "reranker": "overlap"}),
        ("retrieved", {"candidates": 3}),
        ("searched", {"pairs": selected.choice.pairs, "chunks": 1, "reranker": "overlap", "stopped_by": "finished"}),
    ]


def test_a_request_says_method_strategy_and_pair_limit_and_else_the_agent_does():
    selector = selector_over(THREE, configuration=Configuration("ranked"))
    assert select(selector, asked("a b", 8)).choice.pairs == 3
    assert select(selector, asked("a b", 8)).method == "ranked"
    by_method = select(selector, asked("a b", 8, method="corag"))
    assert (by_method.method, by_method.stopped_by) == ("corag", "finished")
    assert by_method.choice.pairs > 3
    own = select(selector, asked("a b", 8, method="corag", strategy=PlainStrategy(kind="ranked")))
    assert own.choice.pairs == 3
    limited = select(selector, asked("a b", 8, method="corag", pair_limit=4))
    assert (limited.choice.pairs, limited.stopped_by) == (4, "pair_limit")
    assert limited.degraded == ()
    bounded = select(selector_over(THREE, most_pairs=3), asked("a b", 8, method="corag", pair_limit=1000))
    assert bounded.choice.pairs == 3


def test_the_agents_changes_are_of_its_methods_strategy():
    changed = selector_over(THREE, configuration=Configuration("corag", changes={"iterations": 1}))
    assert select(changed, asked("a b", 100)).choice.pairs == 3  # the root's children alone
    assert select(changed, asked("a b", 100, method="corag")).choice.pairs == 3
    assert select(changed, asked("a b", 100, method="ranked")).choice.pairs == 3
    own = asked("a b", 100, strategy=CONFIG.methods["corag"].strategy)
    assert select(changed, own).choice.pairs > 3


def test_similarity_is_fetched_for_a_strategy_that_reads_it_alone():
    selector = selector_over(THREE)
    select(selector, asked("a b", method="mmr"))
    select(selector, asked("a b", method="corag"))
    assert selector.parts.asked_similarity == [True, False]


def test_a_method_without_a_context_asks_neither_index_nor_reranker():
    selector = selector_over(THREE)
    selected = select(selector, asked("a b", method="none"))
    assert selected.choice.prompt == "User question: a b\n"
    assert selector.parts.asked_similarity == []
    assert selector.searcher.pools["overlap"].opened == []


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (asked("a", method="corga"), "unknown method 'corga'; did you mean 'corag'?"),
        (asked("a", reranker="overlaps"), "unknown reranker 'overlaps'; did you mean 'overlap'?"),
        (asked("a", method="gold"), "takes gold passages"),
        (asked("a", method="none", reranker="overlap"), "searches nothing"),
    ],
)
def test_what_is_not_there_is_refused_in_one_sentence(request_, message):
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        select(selector_over(THREE), request_)


def test_a_question_beyond_the_window_is_refused_as_in_the_batch():
    with pytest.raises(RowError, match="shorten either"):
        select(selector_over(THREE, tokenizer=WordTokenizer(10)), asked("a b c d"))


def test_at_the_deadline_the_best_so_far_is_the_answer_and_says_so():
    pool = FakePool(chunks_of(THREE), late_after=2)
    selected = select(selector_over(THREE, {"overlap": pool}), asked("a b", 100, explain=True))
    assert [chunk.text for chunk in selected.choice.selection] == ["a b"]
    assert selected.stopped_by == "deadline"
    assert selected.choice.trace.stopped == "unfinished"
    assert sum(node.asked is not None for node in selected.choice.trace.nodes) == selected.choice.pairs
    assert len(selected.degraded) == 1
    assert "best that was found so far" in selected.degraded[0]
    assert selected.choice.pairs == sum(map(len, pool.calls))
    assert select(selector_over(THREE), asked("a b", 100)).choice.pairs > selected.choice.pairs


def test_before_anything_has_a_score_the_deadline_leaves_the_retrieval_order():
    selected = select(selector_over(THREE), asked("a b", 8, in_s=-1.0))
    assert [chunk.text for chunk in selected.choice.selection] == ["a b", "a x x"]  # by rank: 3 and 4 of 8 tokens
    assert (selected.stopped_by, selected.choice.reranker, selected.choice.score) == ("deadline", None, None)
    assert selected.choice.pairs == 0
    assert selected.degraded
    assert selected.choice.prompt.endswith("1. a b\n2. a x x\n")


def test_a_dead_pool_is_stood_in_for_by_the_next_and_the_answer_says_so():
    chunks = chunks_of(THREE)
    pools = {"overlap": FakePool(chunks, dead_after=1), "other": FakePool(chunks)}
    selected = select(selector_over(THREE, pools, ["overlap", "other"]), asked("a b", 100))
    undisturbed = select(selector_over(THREE), asked("a b", 100))
    assert selected.choice.reranker == "other"
    assert selected.choice.selection == undisturbed.choice.selection
    assert selected.choice.pairs == undisturbed.choice.pairs  # the search began anew
    assert selected.degraded == ("reranker 'overlap' lost its replica 4 times in a row.",)
    assert selected.stopped_by == "finished"


def test_without_any_pool_the_retrieval_order_stands_in():
    chunks = chunks_of(THREE)
    pools = {"overlap": FakePool(chunks, dead_after=0), "other": FakePool(chunks, dead_after=0)}
    selected = select(selector_over(THREE, pools, ["other"]), asked("a b", 8))
    assert [chunk.text for chunk in selected.choice.selection] == ["a b", "a x x"]
    assert (selected.choice.reranker, len(selected.degraded), selected.stopped_by) == (None, 2, "finished")


def test_a_window_is_told_as_in_the_batch():
    pools = {"overlap": FakePool(chunks_of(THREE), window=2)}
    choice = select(selector_over(THREE, pools), asked("a b", 100)).choice
    assert (choice.selection_windows, choice.question_tokens_cut) == (2, 2)
    assert choice.notes == [
        "the chosen combination exceeds the reranker's window and was scored in 2 windows",
        "the question of 9 tokens exceeds half of the reranker's window and was cut to 7",
    ]


def rerank(selector, request, combine=True):
    return asyncio.run(selector.rerank(request, combine=combine))


def test_documents_are_ranked_by_their_own_score_and_combined_within_the_budget():
    # Values: 1/2 - 3/200 = .485, 1 - 2/200 = .99, 0 - 1/200 < 0, so calibrated 0.
    documents = ("a x x", "a b", "q", "b c")
    ranked = rerank(selector_over(THREE), asked("a b", 5, documents=documents))
    assert ranked.ranking == ((1, 0.99), (3, 0.49), (0, 0.485), (2, 0.0))
    assert (ranked.reranker, ranked.tokens) == ("overlap", 4 + 3 + 2 + 3)
    assert [chunk.doc_id for chunk in ranked.selected.choice.selection] == ["1"]
    assert ranked.selected.choice.score == 0.99
    assert rerank(selector_over(THREE), asked("a b", documents=documents), combine=False).selected is None


def test_documents_need_a_reranker_that_answers():
    pools = {"overlap": FakePool([], dead_after=0)}
    with pytest.raises(UnavailableError, match="'overlap' lost its replica"):
        rerank(selector_over(THREE, pools), asked("a b", documents=("a",)))
    both = pools | {"other": FakePool([])}
    ranked = rerank(selector_over(THREE, both, ["other"]), asked("a b", documents=("a", "b")))
    assert ranked.reranker == "other"
    assert ranked.degraded == ("reranker 'overlap' lost its replica 4 times in a row.",)


def test_documents_are_compared_with_each_other_for_a_strategy_that_reads_similarity():
    ranked = rerank(selector_over(THREE), asked("a b", 9, method="mmr", documents=("a b", "a b", "b c")))
    assert ranked.selected.choice.selection
