"""Exact dense search in FAISS, and the hybrid of dense and lexical search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from corag_ray.models.lexical import LexicalIndex
from corag_ray.models.protocols import Embedder, FirstStage, FloatArray
from corag_ray.models.ranking import fuse, top_rows

FUSION_DEPTH = 1000
"""Ranks of each list that fusion reads. Fixed, so that a fused ranking has the same prefix whatever `k`."""


class DenseIndex:
    """Inner products of unit vectors, exact (FAISS `IndexFlatIP`)."""

    def __init__(self, index: faiss.Index, ids: NDArray[np.uint64], embedder: Embedder) -> None:
        """`index` holds one vector a store row; `ids` [n] are the chunk ids by row."""
        # FAISS's BLAS path rounds unlike its one-query path: a query's numbers must not depend on its company.
        faiss.cvar.distance_compute_blas_threshold = 1 << 30
        self._index = index
        self._ids = ids
        self._embedder = embedder

    @staticmethod
    def build(dim: int) -> faiss.Index:
        """An empty index to which vectors [m, dim] are added in store order."""
        return faiss.IndexFlatIP(dim)

    @classmethod
    def load(cls, path: Path, ids: NDArray[np.uint64], embedder: Embedder) -> DenseIndex:
        """Open a saved index.

        Raises:
            ValueError: it holds another number of vectors than there are chunks.
        """
        index = faiss.read_index(str(path))
        if index.ntotal != len(ids):
            raise ValueError(f"{path.name} holds {index.ntotal} vectors for {len(ids)} chunks")
        return cls(index, ids, embedder)

    def search(self, queries: Sequence[str], k: int) -> list[list[tuple[int, float]]]:
        """See `FirstStage`."""
        return [self._search_vector(vector, k) for vector in self._embedder.embed(queries)]

    def vectors(self, rows: Sequence[int]) -> FloatArray:
        """The stored unit vectors of the given rows, [rows, dim]."""
        found: FloatArray = self._index.reconstruct_batch(np.array(rows, dtype=np.int64))
        return found

    def _search_vector(self, vector: FloatArray, k: int) -> list[tuple[int, float]]:
        """Fetch past `k` until the last score fetched is below the k-th: FAISS's order among ties depends on k."""
        total = self._index.ntotal
        fetch = min(total, k + 16)
        while fetch > 0:
            scores, rows = self._index.search(vector[None, :], fetch)
            if fetch == total or scores[0, k - 1] > scores[0, -1]:
                found = rows[0] >= 0  # -1 stands for "nothing here", as for a NaN query
                return top_rows(rows[0][found], scores[0][found], self._ids, k)
            fetch = min(total, fetch * 4)
        return []


class HybridIndex:
    """Reciprocal rank fusion of dense and lexical search."""

    def __init__(self, dense: DenseIndex, lexical: LexicalIndex, ids: NDArray[np.uint64]) -> None:
        """Both must cover the same store rows."""
        self._parts: tuple[FirstStage, FirstStage] = (dense, lexical)
        self._ids = ids

    def search(self, queries: Sequence[str], k: int) -> list[list[tuple[int, float]]]:
        """See `FirstStage`."""
        lists = [part.search(queries, FUSION_DEPTH) for part in self._parts]
        return [fuse(rankings, self._ids, k) for rankings in zip(*lists, strict=True)]
