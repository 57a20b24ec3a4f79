"""Late interaction: MaxSim over token vectors (Khattab and Zaharia, ColBERT, SIGIR 2020)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from corag_ray.models.calibration import Calibration, cut_to_unit
from corag_ray.models.cosines import cosines
from corag_ray.models.protocols import Embedder, FloatArray, TokenVectors
from corag_ray.types import Chunk, Combination, Score


class LateInteraction:
    """A combination's score is the mean, over the query's word pieces, of the best cosine among all its chunks' pieces.

    The maxima of each candidate are computed once a query (`prepare`); a combination then costs one maximum over rows.
    The score is blind to order, and adding a chunk never lowers it. `raw` is in -1..1; `calibrated`
    cuts it to 0..1 where no calibration is given.
    """

    name = "late_interaction"
    order_sensitive = False
    monotone = True
    memoised = False

    def __init__(
        self, embedder: Embedder, stored: TokenVectors | None = None, calibration: Calibration | None = None
    ) -> None:
        """`stored` gives the vectors kept at indexing; without it they are computed from the candidates' texts."""
        self._embedder = embedder
        self._stored = stored
        self._calibrated = calibration.calibrated if calibration else cut_to_unit

    def prepare(self, query: str, candidates: Sequence[Chunk], rows: Sequence[int] | None) -> FloatArray:
        """The maxima, [candidates, query pieces], float32."""
        _, [query_vectors] = self._embedder.embed_with_tokens([query])
        if len(query_vectors) == 0:  # control characters alone: matches nothing
            return np.full((len(candidates), 1), -1.0, dtype=np.float32)
        if self._stored is not None and rows is not None:
            chunks = self._stored(rows)
        else:
            _, chunks = self._embedder.embed_with_tokens([chunk.text for chunk in candidates])
        return _maxima(chunks, query_vectors)

    def score(self, pairs: Sequence[tuple[FloatArray, Combination]]) -> list[Score]:
        """One score a pair, in order; an empty combination scores -1."""
        raw = np.full(len(pairs), -1.0)
        groups: dict[tuple[int, int], list[int]] = defaultdict(list)
        for i, (prepared, combination) in enumerate(pairs):
            if combination:
                groups[id(prepared), len(combination)].append(i)
        for members in groups.values():
            prepared = pairs[members[0]][0]
            rows = np.array([pairs[i][1] for i in members])
            raw[members] = prepared[rows].max(axis=1).mean(axis=1, dtype=np.float64)
        return [Score(r, self._calibrated(r)) for r in raw.tolist()]


def _maxima(chunks: Sequence[FloatArray], query_vectors: FloatArray) -> FloatArray:
    """For each chunk and query piece the best cosine, [chunks, query pieces]; -1 for a chunk without a word piece."""
    maxima = np.full((len(chunks), len(query_vectors)), -1.0, dtype=np.float32)
    filled = [i for i, vectors in enumerate(chunks) if len(vectors)]
    if filled:
        starts = np.cumsum([0, *(len(chunks[i]) for i in filled[:-1])])
        of_all = cosines(np.concatenate([chunks[i] for i in filled]), query_vectors)  # one product for all chunks
        maxima[filled] = np.maximum.reduceat(of_all, starts, axis=0)
    return maxima
