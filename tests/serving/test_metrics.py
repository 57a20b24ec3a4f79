"""The metrics: their table is the documented one, and what happens is what they are told."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fake_metrics import FakeMetrics
from fake_parts import FakePool, asked, chunks_of, selector_over
from fake_service import FakeService, client_of
from starlette.requests import ClientDisconnect

from corag_ray.errors import (
    ConfigError,
    DeadlineError,
    OverloadedError,
    ProtocolError,
    RowError,
    UnavailableError,
)
from corag_ray.memo import Memo
from corag_ray.models.batches import Padding
from corag_ray.scoring import ScoringContext
from corag_ray.selection import Choice
from corag_ray.serving import metrics
from corag_ray.serving.batcher import Batcher
from corag_ray.serving.deployments.driver import noted
from corag_ray.serving.http.app import make_app
from corag_ray.serving.http.measured import ROUTES, Measured, route_of
from corag_ray.serving.merged_scorer import MergedScorer
from corag_ray.serving.messages import Selected
from corag_ray.serving.settings import read_settings
from corag_ray.types import Score

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
QUESTION = {"question": "How high is the tower?"}


@pytest.fixture
def told(monkeypatch):
    return FakeMetrics(monkeypatch)


def test_the_documented_table_is_the_code_s():
    rows = re.findall(r"^\| `(ray_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", DOCS.read_text("utf-8"), re.MULTILINE)
    assert rows == [
        (metric.exported, metric.kind, ", ".join(f"`{tag}`" for tag in metric.tags), metric.help)
        for metric in metrics.METRICS
    ]


def test_every_declared_metric_is_in_the_table_once_and_buckets_rise():
    declared = [value for value in vars(metrics).values() if isinstance(value, metrics.Metric)]
    assert set(declared) == set(metrics.METRICS)
    assert len({metric.name for metric in metrics.METRICS}) == len(metrics.METRICS)
    for metric in metrics.METRICS:
        assert (metric.kind == "histogram") == bool(metric.buckets)
        assert list(metric.buckets) == sorted(set(metric.buckets))


def test_ray_takes_every_metric_as_it_is_declared():
    for metric in metrics.METRICS:
        tags = dict.fromkeys(metric.tags, "a")
        {"counter": metric.add, "gauge": metric.set, "histogram": metric.observe}[metric.kind](1, **tags)
        assert metrics.made(metric).info["tag_keys"] == metric.tags


def test_a_tag_that_is_not_declared_is_refused_and_one_that_is_missing(told):
    for tags in ({"route": "answer"}, {"route": "answer", "outcome": "bad", "question": "How high?"}):
        with pytest.raises(ProtocolError, match="corag_requests"):
            metrics.REQUESTS.add(**tags)
    assert not told.values


def test_every_route_that_takes_a_key_has_a_tag_of_its_own():
    app = make_app(FakeService(), read_settings({}))
    paths = [path for path in app.openapi()["paths"] if path.startswith("/v1/")]
    assert {route_of(path) for path in [*paths, "/v2/rerank"]} == set(ROUTES)


ERRORS = [
    (ConfigError("no such method."), "bad"),
    (RowError("the question does not fit."), "bad"),
    (OverloadedError("too much is waiting."), "shed"),
    (UnavailableError("the index is out of reach."), "unavailable"),
    (DeadlineError("too late."), "late"),
    (ValueError("a defect"), "failed"),
]


@pytest.mark.parametrize(("error", "outcome"), [(None, "answered"), *ERRORS])
def test_a_request_is_counted_once_by_how_it_ended(told, error, outcome):
    service = FakeService()
    service.error = error
    client_of(service).post("/v1/answer", json=QUESTION)
    assert told.by_tags(metrics.REQUESTS) == {("answer", outcome): [1]}
    [milliseconds] = told.of(metrics.REQUEST_MS, "answer")
    assert milliseconds > 0
    assert told.of(metrics.UNDER_WAY, "requests") == [1, 0]


@pytest.mark.parametrize(("error", "outcome"), [(None, "answered"), *ERRORS])
@pytest.mark.parametrize("path", ["answer", "chat/completions"])
def test_an_error_in_the_middle_of_a_stream_counts_as_that_error(told, error, outcome, path):
    service = FakeService()
    service.pieces_error = error
    body = {"model": "corag", "messages": [{"role": "user", "content": "How?"}]} if "chat" in path else QUESTION
    response = client_of(service).post(f"/v1/{path}", json=body | {"stream": True})
    assert response.status_code == 200
    assert told.by_tags(metrics.REQUESTS) == {(path.split("/")[0], outcome): [1]}


def test_what_the_gate_refuses_is_counted_and_what_is_no_work_is_not(told):
    client = client_of(FakeService(), {"http": {"max_body_bytes": 100}}, keys=["a-key"])
    key = {"authorization": "Bearer a-key"}
    client.post("/v1/answer", json=QUESTION)
    client.post("/v1/search", content=b"x" * 101, headers=key)
    client.get("/v1/0f3a9c/../secrets?q=secret", headers=key)
    client.get("/health")
    client.get("/nothing")
    assert told.by_tags(metrics.REQUESTS) == {
        ("answer", "unauthorized"): [1],
        ("search", "bad"): [1],
        ("other", "bad"): [1],
    }


async def _nothing():
    return {"type": "http.disconnect"}


async def _thrown_away(message):
    pass


def measured(told, inner):
    """The outcome of a request that `inner` answers, by the error it ends with."""
    with pytest.raises(BaseException) if inner.raises else _no_error():
        asyncio.run(Measured(inner)({"type": "http", "path": "/v1/answer"}, _nothing, _thrown_away))
    assert told.of(metrics.UNDER_WAY, "requests")[-1] == 0
    [outcome] = told.by_tags(metrics.REQUESTS)
    return outcome[1]


class _no_error:
    def __enter__(self):
        pass

    def __exit__(self, *error):
        return None


class Begun:
    """An application that sends the beginning of a stream, and then ends as it is told."""

    def __init__(self, raises=None):
        self.raises = raises

    async def __call__(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"data: 1", "more_body": True})
        if self.raises:
            raise self.raises


@pytest.mark.parametrize("error", [None, asyncio.CancelledError(), ClientDisconnect()])
def test_a_request_whose_client_left_is_cancelled(told, error):
    assert measured(told, Begun(error)) == "cancelled"


def test_a_stream_that_breaks_off_has_failed(told):
    assert measured(told, Begun(ValueError("a defect"))) == "failed"


def test_a_selection_gives_its_stages_and_tokens_and_says_if_its_time_was_up(told):
    choice = Choice("retrieval", prompt="the prompt", context_tokens=31, latency_ms={"search": 5.0, "retrieve": 2.0})
    noted(Selected("corag", choice, (), None, stopped_by="deadline"))
    noted(Selected("corag", choice, (), None, stopped_by="pair_limit"))
    assert told.by_tags(metrics.STAGE_MS) == {("search",): [5.0, 5.0], ("retrieve",): [2.0, 2.0]}
    assert told.of(metrics.ANSWER_TOKENS, "context") == [31, 31]
    assert told.by_tags(metrics.DEGRADED) == {("search_deadline",): [1]}


def test_a_request_is_degraded_once_however_many_rerankers_do_not_answer_and_not_at_all_if_it_is_refused(told):
    chunks = chunks_of(["a x x", "a b", "b c z z"])
    dead = FakePool(chunks, dead_after=0)
    selector = selector_over(["a x x", "a b"], {"overlap": dead, "other": dead}, ["other"])
    found = asyncio.run(selector.select(asked("a b")))
    assert len(found.degraded) == 2
    assert told.by_tags(metrics.DEGRADED) == {("reranker",): [1]}
    with pytest.raises(UnavailableError):
        asyncio.run(selector.rerank(asked("a b", documents=("a", "b")), combine=False))
    alive = selector_over(["a"], {"overlap": dead, "other": FakePool(chunks)}, ["other"])
    asyncio.run(alive.rerank(asked("a b", documents=("a", "b")), combine=False))
    assert sum(told.of(metrics.DEGRADED, "reranker")) == 2


class Read:
    """A memoised reranker whose every call computes 10 positions, 7 with a token."""

    order_sensitive = True

    def __init__(self):
        self.padding = Padding()

    def score(self, pairs):
        self.padding.positions, self.padding.tokens = self.padding.positions + 10, self.padding.tokens + 7
        return [Score(float(sum(combination)), 0.5) for _, combination in pairs]

    def calibrated(self, raw):
        return 0.5


def test_batches_count_pairs_tokens_padding_and_what_the_memo_knew(told):
    memo = Memo({"read": "1"}, 10)
    keys = memo.keys("read", "how?", ["a", "b", "c"], True)

    async def score():
        with ThreadPoolExecutor(1) as thread:
            scorer = MergedScorer("read", Read(), memo, thread, batch_pairs=9, most_waiting_pairs=9)
            context = ScoringContext("read", None, "raw", keys)
            for combinations in ([(0,), (1,)], [(1,), (2,), (0, 2)]):
                await scorer.score(lambda: context, combinations, float("inf"))

    asyncio.run(score())
    expected = {
        metrics.SCORED_PAIRS: [2, 3],
        metrics.COMPUTED_PAIRS: [2, 2],  # (1,) is known the second time
        metrics.BATCH_PAIRS: [2, 3],
        metrics.BATCH_TOKENS: [7, 7],
        metrics.BATCH_PADDING: [3, 3],
        metrics.MEMO_LOOKUPS: [2, 3],
        metrics.MEMO_HITS: [1],
    }
    assert {metric: told.of(metric, "read") for metric in expected} == expected
    assert told.of(metrics.WAITING, "read_pairs") == [2, 0, 3, 0]


def test_the_queue_s_gauge_is_what_waits_now(told):
    async def run():
        with ThreadPoolExecutor(1) as thread:
            batcher = Batcher(list, thread, most=4, most_waiting=10, name="numbers")
            await asyncio.gather(*[batcher.submit(number, weight=2) for number in range(3)])

    asyncio.run(run())
    assert told.of(metrics.WAITING, "numbers") == [2, 4, 6, 4, 2, 0]


def test_a_gauge_is_told_again_with_the_value_that_it_has(told):
    for value, queue in ((3, "a"), (1, "b"), (2, "a")):
        metrics.WAITING.set(value, queue=queue)
    metrics.tell_again()
    assert told.of(metrics.WAITING, "a") == [3, 2, 2]
    assert told.of(metrics.WAITING, "b") == [1, 1]
