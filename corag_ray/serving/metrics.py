"""The service's metrics: one table of them, kept by Ray and told in Prometheus' format at every node's metrics port.

Tags have few values each (names of the configuration, words of this code): no text, id or path of a request is one.
"""

from __future__ import annotations

import functools
import threading
import time
from dataclasses import dataclass
from typing import Any, Literal

from ray.serve import metrics as kept

from corag_ray.errors import ProtocolError

MILLISECONDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 3e5)
TOKENS = (8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)
RETOLD_S = 5.0
PAIRS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of the table; Ray adds the deployment, the replica and the application as tags of its own.

    `buckets` are a histogram's upper bounds, in the unit that ends its name. A series is there once it has a value.
    """

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    help: str
    tags: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def exported(self) -> str:
        """The name that Prometheus sees; a histogram has three of it, with `_bucket`, `_sum` and `_count` behind."""
        return f"ray_{self.name}_total" if self.kind == "counter" else f"ray_{self.name}"

    def add(self, number: float = 1, **tags: str) -> None:
        """Let a counter grow; by 0 nothing happens."""
        if number:
            made(self).inc(number, self._checked(tags))

    def set(self, value: float, **tags: str) -> None:
        """Set a gauge, which keeps the value until it is set anew."""
        told = self._checked(tags)
        made(self).set(value, told)
        if self.kind == "gauge":
            _kept_up[self, tuple(told.items())] = value
            _keep_up()

    def observe(self, value: float, **tags: str) -> None:
        """Give a histogram one value."""
        made(self).observe(value, self._checked(tags))

    def _checked(self, tags: dict[str, str]) -> dict[str, str]:
        if tags.keys() != set(self.tags):
            raise ProtocolError(f"metric '{self.name}' has the tags {self.tags}, not {tuple(tags)}.")
        return tags


REQUESTS = Metric(
    "counter",
    "corag_requests",
    "Requests that ended: answered, bad, unauthorized, shed, unavailable, late, failed, or cancelled by the client.",
    ("route", "outcome"),
)
REQUEST_MS = Metric(
    "histogram", "corag_request_ms", "Milliseconds from a request to the end of its answer.", ("route",), MILLISECONDS
)
DEGRADED = Metric(
    "counter",
    "corag_degraded",
    "Answers made otherwise than asked: reranker (another or none stood in), search_deadline, generation_deadline.",
    ("because",),
)
UNDER_WAY = Metric(
    "gauge", "corag_under_way", "Requests in the ingress, searches in a driver, answers being written.", ("part",)
)
STAGE_MS = Metric(
    "histogram",
    "corag_stage_ms",
    "Milliseconds of a request's stages: configure, retrieve, prepare, search, generate.",
    ("stage",),
    MILLISECONDS,
)
ANSWER_TOKENS = Metric(
    "histogram",
    "corag_answer_tokens",
    "Tokens an answer: of the context, of the whole prompt, and written.",
    ("of",),
    TOKENS,
)
SCORED_PAIRS = Metric(
    "counter", "corag_pairs", "Pairs of a query and a combination that searches asked to have scored.", ("reranker",)
)
COMPUTED_PAIRS = Metric(
    "counter", "corag_pairs_computed", "Pairs that the reranker was called for, of those asked.", ("reranker",)
)
BATCH_PAIRS = Metric(
    "histogram", "corag_batch_pairs", "Pairs a merged batch, as asked, of any number of searches.", ("reranker",), PAIRS
)
BATCH_TOKENS = Metric(
    "counter", "corag_batch_tokens", "Tokens in the forward passes of a cross-encoder, padding left out.", ("reranker",)
)
BATCH_PADDING = Metric(
    "counter",
    "corag_batch_padding",
    "Positions in the forward passes of a cross-encoder that held no token.",
    ("reranker",),
)
MEMO_LOOKUPS = Metric("counter", "corag_memo_lookups", "Scores that were looked for in the memo.", ("reranker",))
MEMO_HITS = Metric("counter", "corag_memo_hits", "Scores that were found in the memo.", ("reranker",))
WAITING = Metric(
    "gauge",
    "corag_waiting",
    "What waits for its batch in a replica: texts, queries or pairs, as the queue's name says.",
    ("queue",),
)

METRICS = (
    *(REQUESTS, REQUEST_MS, DEGRADED, UNDER_WAY, STAGE_MS, ANSWER_TOKENS, SCORED_PAIRS, COMPUTED_PAIRS, BATCH_PAIRS),
    *(BATCH_TOKENS, BATCH_PADDING, MEMO_LOOKUPS, MEMO_HITS, WAITING),
)
"""All of them; `docs/metrics.md` has the same table."""


@functools.cache
def made(metric: Metric) -> Any:
    """Ray's side of a metric, made when it is first used: by then a replica knows what it is, and tags itself so."""
    if metric.kind == "counter":
        return kept.Counter(metric.name, metric.help, metric.tags)
    if metric.kind == "gauge":
        return kept.Gauge(metric.name, metric.help, metric.tags)
    return kept.Histogram(metric.name, metric.help, list(metric.buckets), metric.tags)


_kept_up: dict[tuple[Metric, tuple[tuple[str, str], ...]], float] = {}
"""The values that gauges were set to last, by metric and tags."""


@functools.cache
def _keep_up() -> None:
    """From the first call on, tell Ray the gauges' values again and again: it drops one that is silent for 20 s."""

    def always() -> None:
        while True:
            time.sleep(RETOLD_S)
            tell_again()

    threading.Thread(target=always, name="gauges", daemon=True).start()


def tell_again() -> None:
    """Set every gauge to the value that it has."""
    for (metric, tags), value in list(_kept_up.items()):
        made(metric).set(value, dict(tags))


class UnderWay:
    """A context that may be entered many times at once, from one event loop; `number` is how often it is."""

    def __init__(self, part: str) -> None:
        """`part` is the tag of the gauge."""
        self.number = 0
        self._part = part

    def __enter__(self) -> None:
        self._changed(1)

    def __exit__(self, *error: object) -> None:
        self._changed(-1)

    def _changed(self, by: int) -> None:
        self.number += by
        UNDER_WAY.set(self.number, part=self._part)
