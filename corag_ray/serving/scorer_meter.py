"""What one reranker's merged batches took, for the metrics."""

from __future__ import annotations

from typing import Any

from corag_ray.memo import Memo
from corag_ray.models.batches import Padding
from corag_ray.models.protocols import PaddedReranker, Reranker
from corag_ray.serving.metrics import (
    BATCH_PADDING,
    BATCH_PAIRS,
    BATCH_TOKENS,
    COMPUTED_PAIRS,
    MEMO_HITS,
    MEMO_LOOKUPS,
    SCORED_PAIRS,
    Metric,
)


class ScorerMeter:
    """Reads the running totals of a reranker and of its memo after each batch, and counts what came since the last."""

    def __init__(self, name: str, reranker: Reranker[Any], memo: Memo) -> None:
        """Both are taken to have no other user; `name` is the reranker's tag."""
        self._name, self._reranker, self._memo = name, reranker, memo
        self._read = self._totals()

    def note(self, pairs: int, computed: int) -> None:
        """A batch of so many pairs, for some of which the reranker was called, has been scored."""
        SCORED_PAIRS.add(pairs, reranker=self._name)
        COMPUTED_PAIRS.add(computed, reranker=self._name)
        BATCH_PAIRS.observe(pairs, reranker=self._name)
        before, self._read = self._read, self._totals()
        for metric, total in self._read.items():
            metric.add(total - before[metric], reranker=self._name)

    def _totals(self) -> dict[Metric, int]:
        padding = self._reranker.padding if isinstance(self._reranker, PaddedReranker) else Padding()
        return {
            BATCH_TOKENS: padding.tokens,
            BATCH_PADDING: padding.positions - padding.tokens,
            MEMO_LOOKUPS: self._memo.lookups,
            MEMO_HITS: self._memo.hits,
        }
