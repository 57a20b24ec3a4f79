"""Opens an index folder for retrieval: store and token vectors memory-mapped, the first stages loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from corag_ray.errors import DataError
from corag_ray.indexing.merge import CHUNKS, DENSE, LEXICAL, TOKEN_OFFSETS, TOKEN_VECTORS
from corag_ray.indexing.store import ChunkStore
from corag_ray.indexing.token_vectors import decoded
from corag_ray.indexing.versions import MANIFEST, IndexSpec, find_version, read_json
from corag_ray.models.index import DenseIndex, HybridIndex
from corag_ray.models.lexical import LexicalIndex
from corag_ray.models.protocols import Embedder, FirstStage, FloatArray, TokenVectors


@dataclass(frozen=True, slots=True)
class OpenIndex:
    """One version of an index, ready for search. `token_vectors` is None when the folder does not store them.

    `version` is its number and a hash of what it was made from: answers carry it; `folder` is the version's own.
    """

    version: str
    folder: Path
    store: ChunkStore
    dense: DenseIndex
    lexical: LexicalIndex
    first_stage: FirstStage
    token_vectors: TokenVectors | None


FIRST_STAGES: Mapping[str, Callable[[DenseIndex, LexicalIndex, ChunkStore], FirstStage]] = {
    "dense": lambda dense, lexical, store: dense,
    "lexical": lambda dense, lexical, store: lexical,
    "hybrid": lambda dense, lexical, store: HybridIndex(dense, lexical, store.ids),
}
"""First stages by name: the values of `retrieval.kind`."""


def open_index(folder: Path, spec: IndexSpec, embedder: Embedder, first_stage: str) -> OpenIndex:
    """Open the version of an index that was made as `spec` says; an update afterwards does not touch what is open.

    Raises:
        DataError: there is no finished index, or it was made with other settings.
    """
    version = find_version(folder, spec)
    manifest = read_json(version / MANIFEST)
    store = ChunkStore.open(version / CHUNKS)
    try:
        stored = None
        if manifest["token_vectors_stored"]:
            stored = _stored_tokens(version, len(store), spec.token_vectors.dtype)
        dense = DenseIndex.load(version / DENSE, store.ids, embedder)
        lexical = LexicalIndex.load(version / LEXICAL, store.ids)
        stage = FIRST_STAGES[first_stage](dense, lexical, store)
    except (OSError, ValueError, KeyError, RuntimeError, AttributeError) as error:
        raise DataError(f"the index in {folder} is damaged, delete that folder: {str(error)[:200]}") from error
    return OpenIndex(str(manifest["version"]), version, store, dense, lexical, stage, stored)


def _stored_tokens(folder: Path, chunks: int, dtype: str) -> TokenVectors:
    vectors = np.load(folder / TOKEN_VECTORS, mmap_mode="r")
    offsets = np.load(folder / TOKEN_OFFSETS, mmap_mode="r")
    if vectors.dtype != np.dtype(dtype) or len(offsets) != chunks + 1 or offsets[-1] != len(vectors):
        raise ValueError(f"{TOKEN_VECTORS} does not belong to {CHUNKS}")

    def of_rows(rows: Sequence[int]) -> list[FloatArray]:
        return [decoded(vectors[offsets[row] : offsets[row + 1]]) for row in rows]

    return of_rows
