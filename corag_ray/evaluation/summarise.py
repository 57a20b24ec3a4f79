"""Stored rows summed up: means, intervals, paired differences and the headline of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np

from corag_ray.evaluation.answers import are_short
from corag_ray.evaluation.intervals import bootstrap_interval, mean, paired_bootstrap
from corag_ray.evaluation.row_log import Row
from corag_ray.evaluation.summary import Estimate, MethodSummary, Slice, Summary

METRICS = (
    *(f"rouge_{against}.{name}" for against in ("set", "generated") for name in ("rouge1", "rouge2", "rougeL")),
    *(
        "exact_match",
        "token_f1",
        "abstained_unanswerable",
        "abstained_answerable",
        "evidence_recall",
        "evidence_precision",
        "context_tokens",
        "prompt_tokens",
        "pairs",
        "pairs_computed",
        "latency_ms",
    ),
)
DIFFERENCE_METRICS = (
    "rouge_set.rougeL",
    "rouge_generated.rougeL",
    "exact_match",
    "token_f1",
    "abstained_unanswerable",
    "abstained_answerable",
    "evidence_recall",
    "context_tokens",
    "latency_ms",
)
SLICE_METRICS = ("rouge_set.rougeL", "evidence_recall")
_ABSTAINED_WHERE = {"abstained_unanswerable": False, "abstained_answerable": True}
"""By metric, what a question's `answerable` must be for it to count: SQuAD 2.0 asks both (Rajpurkar et al., 2018)."""
_SLICED_BY: tuple[Literal["language", "kind"], ...] = ("language", "kind")


def summarise(
    rows: Sequence[Row], seed: int = 0, *, coverable_evidence: float | None = None, order_blind: Sequence[str] = ()
) -> Summary:
    """Means, intervals and paired differences of a run; a failed row is counted and enters no mean.

    The baseline of the differences is the first method over retrieved candidates; the others are floor and ceiling.

    Args:
        rows: The run's rows.
        seed: Seed of every bootstrap.
        coverable_evidence: Evidence recall if every chunk of the evidence's documents were selected, where it is known.
        order_blind: The run's rerankers whose scores do not depend on the order of chunks.
    """
    good = [row for row in rows if row["error"] is None]
    names = list(dict.fromkeys(name for row in good for name in row["methods"]))
    bounds = {name for row in good for name, result in row["methods"].items() if result["source"] != "retrieval"}
    chosen = next((name for name in names if name not in bounds), None)
    return Summary(
        rows=len(rows),
        failed=len(rows) - len(good),
        candidate_recall=_estimate([row["candidate_recall"] for row in good], seed),
        candidate_ndcg_at_10=_estimate([row["candidate_ndcg_at_10"] for row in good], seed),
        candidate_rr_at_10=_estimate([row["candidate_rr_at_10"] for row in good], seed),
        pairs=sum(result["pairs"] for row in good for result in row["methods"].values()),
        pairs_computed=sum(result["pairs_computed"] for row in good for result in row["methods"].values()),
        coverable_evidence=coverable_evidence,
        short_answers=are_short([row["answers"] for row in good]),
        order_blind=tuple(order_blind),
        baseline=chosen,
        methods=tuple(_method_summary(name, good, name in bounds, seed) for name in names),
        differences={
            name: {
                metric: paired_bootstrap(_column(good, name, metric), _column(good, chosen, metric), seed)
                for metric in DIFFERENCE_METRICS
            }
            for name in names
            if chosen is not None and name != chosen
        },
        slices=tuple(_slice(good, by, value, seed) for by in _SLICED_BY for value in _distinct(good, by)),
    )


def headline(summary: Summary) -> dict[str, Any]:
    """The few numbers that stand for a run: for each method its main means, and the counts to read them with.

    `pairs_unscored` is by method, of those methods that have any.
    """
    metrics = {
        "rouge_l_set": "rouge_set.rougeL",
        "rouge_l_generated": "rouge_generated.rougeL",
        "exact_match": "exact_match",
        "token_f1": "token_f1",
        "abstained_unanswerable": "abstained_unanswerable",
        "abstained_answerable": "abstained_answerable",
        "evidence_recall": "evidence_recall",
        "tokens": "context_tokens",
        "pairs": "pairs",
        "pairs_computed": "pairs_computed",
        "latency_ms": "latency_ms",
    }
    return {
        "methods": {
            method.name: {short: method.estimates[metric].mean for short, metric in metrics.items()}
            for method in summary.methods
        },
        "candidates": {
            "recall": summary.candidate_recall.mean,
            "ndcg_at_10": summary.candidate_ndcg_at_10.mean,
            "rr_at_10": summary.candidate_rr_at_10.mean,
        },
        "shared_pairs": summary.shared_pairs,
        "pairs_unscored": {method.name: method.pairs_unscored for method in summary.methods if method.pairs_unscored},
        "rows": summary.rows,
        "failed": summary.failed,
        "over_budget": summary.over_budget,
    }


def metric_value(row: Row, name: str, metric: str) -> float | None:
    """One of `METRICS` of a method for one question; None when it was not measured."""
    result = row["methods"][name]
    if metric == "latency_ms":
        return sum(result["latency_ms"].values()) if result["latency_ms"] else None
    if metric in _ABSTAINED_WHERE:
        counts = row["answerable"] is _ABSTAINED_WHERE[metric]
        return float(result["abstained"]) if counts and result["abstained"] is not None else None
    group, _, part = metric.partition(".")
    value = cast(Mapping[str, Any], result)[group]
    if value is None:
        return None
    return float(value[part] if part else value)


def _method_summary(name: str, good: Sequence[Row], is_bound: bool, seed: int) -> MethodSummary:
    rows = [row for row in good if name in row["methods"]]
    results = [row["methods"][name] for row in rows]
    columns = {metric: _column(rows, name, metric) for metric in METRICS}
    latencies = [value for value in columns["latency_ms"] if value is not None]
    stages = dict.fromkeys(stage for result in results for stage in result["latency_ms"])
    p50, p95 = (float(value) for value in np.percentile(latencies, [50, 95])) if latencies else (None, None)
    return MethodSummary(
        name=name,
        is_bound=is_bound,
        reranker=next((result["reranker"] for result in results), None),
        n=len(results),
        estimates={metric: _estimate(column, seed) for metric, column in columns.items()},
        latency_p50_ms=p50,
        latency_p95_ms=p95,
        stage_ms={
            stage: sum(result["latency_ms"].get(stage, 0.0) for result in results) / len(latencies) for stage in stages
        },
        over_budget=sum(result["context_tokens"] > result["effective_budget_tokens"] for result in results),
        pairs_unscored=sum(result["pairs_unscored"] for result in results),
        windowed_selections=sum((result["selection_windows"] or 0) > 1 for result in results),
        cut_questions=sum(result["question_tokens_cut"] > 0 for result in results),
    )


def _slice(good: Sequence[Row], by: Literal["language", "kind"], value: str | None, seed: int) -> Slice:
    rows = [row for row in good if row[by] == value]
    names = dict.fromkeys(name for row in good for name in row["methods"])
    estimates = {
        name: {metric: _estimate(_column(rows, name, metric), seed) for metric in SLICE_METRICS} for name in names
    }
    return Slice(by, value, len(rows), estimates)


def _distinct(rows: Sequence[Row], by: Literal["language", "kind"]) -> list[str | None]:
    return sorted({row[by] for row in rows}, key=lambda value: (value is None, value or ""))


def _column(rows: Sequence[Row], name: str, metric: str) -> list[float | None]:
    """[len(rows)] values of one method, None where a row lacks it: two methods' columns line up by question."""
    return [metric_value(row, name, metric) if name in row["methods"] else None for row in rows]


def _estimate(values: Sequence[float | None], seed: int) -> Estimate:
    interval = bootstrap_interval(values, seed)
    low, high = (interval.low, interval.high) if interval else (None, None)
    return Estimate(mean(values), low, high, sum(value is not None for value in values))
