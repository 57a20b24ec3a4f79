"""Searches share one memo: two methods, later questions, and methods of other parameters."""

import dataclasses
import functools
from collections import Counter

import pytest
from made_selector import RANKED, TREE, Overlap, selector_over, told

from corag_ray.core.policy_tree import PRESETS, PolicyTreeSearch
from corag_ray.indexing.store import ChunkStore, write_chunks
from corag_ray.memo import Memo
from corag_ray.pipeline import Method
from corag_ray.types import Question


class Counting(Overlap):
    """Counts by (question's words, combination's texts in their order) how often a score was computed."""

    def __init__(self):
        super().__init__()
        self.computed = Counter()

    def calibrated(self, raw):
        return max(0.0, raw)

    def score(self, pairs):
        for (asked, texts), combination in pairs:
            self.computed[frozenset(asked), tuple(tuple(texts[n]) for n in combination)] += 1
        return super().score(pairs)


def tree(**changes):
    params = dataclasses.replace(PRESETS["report"], **changes)
    return Method("retrieval", functools.partial(PolicyTreeSearch, params=params), "overlap")


METHODS = {"ranked": RANKED, "tree": TREE, "wide": tree(iterations=30, exploration=0.5), "raw": tree(reading="raw")}
ASKED = [Question("1", "a b c"), Question("2", "b d"), Question("3", "a b c")]


def memoised(store, reranker=None, memo=None, **changes):
    """A selector whose reranker is memoised, and the memo."""
    memo = Memo({"overlap": "model 1"}, 100_000) if memo is None else memo
    rerankers = {"overlap": reranker or Counting()}
    return selector_over(store, rerankers=rerankers, methods=METHODS, memo=memo, **changes), memo


@pytest.mark.parametrize("ordered", [True, False])
def test_each_distinct_combination_is_computed_once_for_all_rounds_methods_and_questions(store, ordered):
    reranker = Counting()
    reranker.order_sensitive = ordered
    selector, memo = memoised(store, reranker)
    plans = selector.select(ASKED[:2])
    plans += selector.select(ASKED)  # among them a question asked a third time
    assert set(reranker.computed.values()) == {1}
    methods = [method for plan in plans for method in plan.methods.values()]
    assert sum(method.pairs_computed for method in methods) == reranker.computed.total()
    assert sum(method.pairs for method in methods) > 2 * reranker.computed.total()
    assert all(0 <= method.pairs_computed <= method.pairs for method in methods)
    assert memo.hits == memo.lookups - reranker.computed.total() > 0
    if not ordered:
        sets = Counter((query, tuple(sorted(texts))) for query, texts in reranker.computed)
        assert set(sets.values()) == {1}


def test_the_second_time_nothing_is_computed_and_pairs_are_what_they_were(store):
    selector, _ = memoised(store)
    first, second = selector.select([ASKED[0]])[0], selector.select([ASKED[0]])[0]
    assert [method.pairs for method in second.methods.values()] == [m.pairs for m in first.methods.values()]
    assert [method.pairs_computed for method in second.methods.values()] == [0] * len(METHODS)
    assert first.methods["ranked"].pairs_computed == first.methods["ranked"].pairs > 0


def test_a_memo_changes_no_choice(store):
    plain = selector_over(store, rerankers={"overlap": Counting()}, methods=METHODS).select(ASKED)
    assert [told(plan) for plan in memoised(store)[0].select(ASKED)] == [told(plan) for plan in plain]


def test_a_reranker_without_an_identity_is_not_memoised(store):
    selector, memo = memoised(store, memo=Memo({"other": "model"}, 100))
    for _ in range(2):
        [plan] = selector.select([ASKED[0]])
        assert plan.methods["ranked"].pairs_computed == plan.methods["ranked"].pairs > 0
    assert memo.lookups == 0


def test_a_text_that_changed_under_the_same_chunk_id_is_scored_anew(store, tmp_path):
    selector, memo = memoised(store)
    [before] = selector.select([ASKED[0]])
    changed = [dataclasses.replace(c, text=c.text.replace("a", "h")) for c in store.take(range(len(store)))]
    write_chunks(tmp_path / "chunks.arrow", changed)
    new_store = ChunkStore.open(tmp_path / "chunks.arrow")
    [after] = memoised(new_store, memo=memo)[0].select([ASKED[0]])
    fresh = memoised(new_store)[0].select([ASKED[0]])[0]
    assert told(after) == told(fresh) != told(before)


def test_a_file_serves_a_later_selector(store, tmp_path):
    first, later = Counting(), Counting()
    for reranker in (first, later):
        memo = Memo({"overlap": "model 1"}, 10, tmp_path / "memo.sqlite")
        memoised(store, reranker, memo)[0].select(ASKED)
        memo.close()
    assert first.computed.total() > 0
    assert later.computed.total() == 0
