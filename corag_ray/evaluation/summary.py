"""The frozen values that a run's rows are summed up in; tables, figures and the report read nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from corag_ray.evaluation.intervals import PairedDifference


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over the `n` questions where it was measured, with its interval; None where there is none."""

    mean: float | None
    low: float | None
    high: float | None
    n: int

    @property
    def half_width(self) -> float | None:
        """Half of the interval's width, for `mean ± half` in tables."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class MethodSummary:
    """One method over a run.

    Attributes:
        name: The method.
        is_bound: Whether it is a floor or ceiling (no context, gold passages) and not a method to choose.
        reranker: Who scored for it; None where nobody did.
        n: Questions it answered.
        estimates: By metric name, the names of `summarise.METRICS`.
        latency_p50_ms: Median of the total latency.
        latency_p95_ms: 95th percentile of the total latency.
        stage_ms: Mean milliseconds by stage; the sum is the mean total, a stage that did not run counting as no time.
        over_budget: Questions whose recounted context exceeds the budget.
        pairs_unscored: Pairs that could not be scored, of all questions together.
        windowed_selections: Questions whose selection its reranker scored in several windows.
        cut_questions: Questions of which its reranker read the beginning alone.
    """

    name: str
    is_bound: bool
    reranker: str | None
    n: int
    estimates: Mapping[str, Estimate]
    latency_p50_ms: float | None
    latency_p95_ms: float | None
    stage_ms: Mapping[str, float]
    over_budget: int
    pairs_unscored: int
    windowed_selections: int
    cut_questions: int


@dataclass(frozen=True, slots=True)
class Slice:
    """The questions of one language or kind: by method, then by metric (a few only)."""

    by: str
    value: str | None
    n: int
    estimates: Mapping[str, Mapping[str, Estimate]]


@dataclass(frozen=True, slots=True)
class Summary:
    """A whole run.

    `pairs` are those of all methods, and `pairs_computed` those of them for which a reranker was called. `differences`
    holds, by method and metric, the method minus the baseline on the same questions. `short_answers` says whether the
    set's answers are short, so that exact match and token F1 are worth a look. `coverable_evidence` is the evidence
    recall if every chunk of the evidence's documents were selected, None where it is not known; `order_blind` names the
    rerankers whose scores do not depend on the order of chunks.
    """

    rows: int
    failed: int
    candidate_recall: Estimate
    candidate_ndcg_at_10: Estimate
    candidate_rr_at_10: Estimate
    pairs: int
    pairs_computed: int
    coverable_evidence: float | None
    short_answers: bool
    order_blind: tuple[str, ...]
    baseline: str | None
    methods: tuple[MethodSummary, ...]
    differences: Mapping[str, Mapping[str, PairedDifference | None]]
    slices: tuple[Slice, ...]

    @property
    def shared_pairs(self) -> float | None:
        """Share of the pairs whose score was in the memo or came with another method's call; None without a pair."""
        return 1 - self.pairs_computed / self.pairs if self.pairs else None

    @property
    def over_budget(self) -> int:
        """Contexts over the budget, all methods together."""
        return sum(method.over_budget for method in self.methods)
