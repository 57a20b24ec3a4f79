"""Opens an index folder for retrieval: store and token vectors memory-mapped, the first stages loaded."""

from __future__ import annotations

import json
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
    first_stage: FirstStage
    token_vectors: TokenVectors | None


FIRST_STAGES: Mapping[str, Callable[[Path, ChunkStore, Embedder], FirstStage]] = {
    "dense": lambda folder, store, embedder: DenseIndex.load(folder / DENSE, store.ids, embedder),
    "lexical": lambda folder, store, embedder: LexicalIndex.load(folder / LEXICAL, store.ids),
    "hybrid": lambda folder, store, embedder: HybridIndex(
        DenseIndex.load(folder / DENSE, store.ids, embedder), LexicalIndex.load(folder / LEXICAL, store.ids), store.ids
    ),
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
    stored = _stored_tokens(folder) if manifest["token_vectors"] else None
    return OpenIndex(store, FIRST_STAGES[first_stage](folder, store, embedder), stored)


def is_finished(folder: Path) -> bool:
    """Whether the folder holds a finished index."""
    return (folder / MANIFEST).is_file()


def read_manifest(folder: Path) -> dict[str, object]:
    """The manifest of a finished index."""
    if not is_finished(folder):
        raise DataError(f"{folder} holds no finished index: build it with `corag index`.")
    manifest: dict[str, object] = json.loads((folder / MANIFEST).read_text("utf-8"))
    return manifest


def _stored_tokens(folder: Path) -> TokenVectors:
    vectors = np.load(folder / TOKEN_VECTORS, mmap_mode="r")
    offsets = np.load(folder / TOKEN_OFFSETS, mmap_mode="r")

    def of_rows(rows: Sequence[int]) -> list[FloatArray]:
        return [vectors[offsets[row] : offsets[row + 1]].astype(np.float32) for row in rows]

    return of_rows
