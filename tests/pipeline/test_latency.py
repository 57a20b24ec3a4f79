"""Latency by stage: what is shared is divided, and sums are the time that was taken."""

import dataclasses
import time

import numpy as np
import pytest
from made_selector import RANKED, Echo, Overlap, WordSearch, selector_over

from corag_ray.core.fill import SinglesFill
from corag_ray.core.ranked import RankedParams
from corag_ray.pipeline import Answerer, Method
from corag_ray.types import Question


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
