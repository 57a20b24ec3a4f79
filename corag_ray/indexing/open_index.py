"""Opens an index folder for retrieval: store and token vectors memory-mapped, the first stages loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from corag_ray.errors import DataError
from corag_ray.indexing.build_index import (
    CHUNKS,
    DENSE,
    LEXICAL,
    MANIFEST,
    TOKEN_OFFSETS,
    TOKEN_VECTORS,
    IndexSpec,
    check_spec,
    read_json,
)
from corag_ray.indexing.store import ChunkStore
from corag_ray.models.index import DenseIndex, HybridIndex
from corag_ray.models.lexical import LexicalIndex
from corag_ray.models.protocols import Embedder, FirstStage, FloatArray
from corag_ray.models.reranker import TokenVectors


@dataclass(frozen=True, slots=True)
class OpenIndex:
    """An index ready for search. `token_vectors` is None when the folder does not store them."""

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
    """Open a finished index that was made as `spec` says.

    Raises:
        DataError: there is no finished index, or it was made with other settings.
    """
    manifest = read_manifest(folder)
    check_spec(folder, manifest, spec)
    store = ChunkStore.open(folder / CHUNKS)
    try:
        stored = _stored_tokens(folder, len(store)) if manifest["token_vectors"] else None
        dense = DenseIndex.load(folder / DENSE, store.ids, embedder)
        lexical = LexicalIndex.load(folder / LEXICAL, store.ids)
        stage = FIRST_STAGES[first_stage](dense, lexical, store)
    except (OSError, ValueError, KeyError, RuntimeError, AttributeError) as error:
        raise DataError(f"the index in {folder} is damaged, delete that folder: {str(error)[:200]}") from error
    return OpenIndex(store, dense, lexical, stage, stored)


def is_finished(folder: Path) -> bool:
    """Whether the folder holds a finished index."""
    return (folder / MANIFEST).is_file()


def read_manifest(folder: Path) -> dict[str, object]:
    """The manifest of a finished index."""
    if not is_finished(folder):
        raise DataError(f"{folder} holds no finished index: build it with `corag index`.")
    return read_json(folder / MANIFEST)


def _stored_tokens(folder: Path, chunks: int) -> TokenVectors:
    vectors = np.load(folder / TOKEN_VECTORS, mmap_mode="r")
    offsets = np.load(folder / TOKEN_OFFSETS, mmap_mode="r")
    if len(offsets) != chunks + 1 or offsets[-1] != len(vectors):
        raise ValueError(f"{TOKEN_VECTORS} does not belong to {CHUNKS}")

    def of_rows(rows: Sequence[int]) -> list[FloatArray]:
        return [vectors[offsets[row] : offsets[row + 1]].astype(np.float32) for row in rows]

    return of_rows
