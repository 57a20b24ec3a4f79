"""Pooled embedding: the cosine of the query with the mean of the combination's chunk vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from corag_ray.models.calibration import Calibration, cut_to_unit
from corag_ray.models.cosines import cosines
from corag_ray.models.protocols import Embedder, FloatArray
from corag_ray.types import Chunk, Combination, Score


@dataclass(frozen=True, slots=True)
class PreparedPool:
    """Of k candidates: weights [k] in tokens, cosines with the query [k], and with each other [k, k]."""

    weights: FloatArray
    with_query: FloatArray
    with_each_other: FloatArray


class PooledEmbedding:
    """The cosine of the query's vector with the mean of the chunks' unit vectors, weighted by their tokens.

    That mean is about what an embedder with mean pooling makes of the chunks read one after another. The score is
    blind to order and not additive, and an unrelated chunk lowers it. `raw` is in -1..1; `calibrated` cuts it to 0..1
    where no calibration is given.
    """

    name = "pooled_embedding"
    order_sensitive = False
    monotone = False
    memoised = False

    def __init__(
        self,
        embedder: Embedder,
        vectors: Callable[[Sequence[int]], FloatArray],
        calibration: Calibration | None = None,
    ) -> None:
        """`vectors` gives the stored unit vectors of rows of the chunk store, [rows, dim]."""
        self._embedder = embedder
        self._vectors = vectors
        self._calibrated = calibration.calibrated if calibration else cut_to_unit

    def prepare(self, query: str, candidates: Sequence[Chunk], rows: Sequence[int] | None) -> PreparedPool:
        """The query is embedded; the vectors of candidates of the store are those of the index."""
        asked = self._embedder.embed([query])
        if rows is None:
            vectors = self._embedder.embed([chunk.text for chunk in candidates])
        else:
            vectors = self._vectors(rows) if rows else np.zeros((0, asked.shape[1]), dtype=np.float32)
        weights = np.array([chunk.cost for chunk in candidates], dtype=np.float32)
        return PreparedPool(weights, cosines(vectors, asked)[:, 0], cosines(vectors, vectors))

    def score(self, pairs: Sequence[tuple[PreparedPool, Combination]]) -> list[Score]:
        """One score a pair, in order; the empty combination scores 0."""
        raw = [_cosine(prepared, sorted(combination)) for prepared, combination in pairs]
        return [Score(value, self._calibrated(value)) for value in raw]


def _cosine(prepared: PreparedPool, members: Sequence[int]) -> float:
    # Products number by number, then a sum: `@` would go through numpy's BLAS, whose threads decide the last bits.
    weights = prepared.weights[members].astype(np.float64)
    squared = float((np.outer(weights, weights) * prepared.with_each_other[np.ix_(members, members)]).sum())
    if squared <= 0.0:  # no chunk, or opposite vectors that cancel out
        return 0.0
    return float((weights * prepared.with_query[members]).sum()) / squared**0.5
