"""The index folder of a data set: made, brought up to date, documents left out; a killed build goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from corag_ray.batch.folder_lock import locked
from corag_ray.batch.progress import Advance, untold
from corag_ray.build import build_embedder, build_tokenizer, index_spec
from corag_ray.config import Config
from corag_ray.datasets.assemble import Dataset
from corag_ray.errors import DataError
from corag_ray.indexing.build_index import Shard, Updated, embed_shard, unchanged, update_index
from corag_ray.indexing.deleted import change_deleted, deleted_documents
from corag_ray.indexing.merge import CHUNKS
from corag_ray.indexing.store import ChunkStore
from corag_ray.indexing.versions import IndexSpec

SHARDS_WITHOUT_RAY = 1
"""So few are embedded here, sooner than Ray and its workers are up."""


def ensure_index(config: Config, dataset: Dataset, folder: Path, advance: Advance = untold) -> Updated:
    """Make the index in `folder` one of this corpus: built, brought up to date, or gone on with where it was.

    Raises:
        DataError: the folder holds an index made with other settings, or cannot be written.
        ConfigError: the plan cannot run on this cluster.
    """
    spec = index_spec(config, dataset)
    if (there := unchanged(folder, spec)) is not None:
        return there  # without a lock: any number of readers share it

    def embed(version: Path, missing: Sequence[Shard], total: int) -> None:
        advance(total - len(missing), total)
        if len(missing) <= SHARDS_WITHOUT_RAY:
            _embed_here(config, version, spec, missing, total, advance)
        else:
            from corag_ray.batch.index_job import embed_with_ray  # Ray takes seconds to import

            embed_with_ray(config, version.resolve(), spec, missing, total, advance)

    with locked(folder):
        if (there := unchanged(folder, spec)) is not None:
            return there
        return update_index(folder, dataset.documents, spec, build_tokenizer(config), embed)


def without_deleted(dataset: Dataset, folder: Path) -> Dataset:
    """The data set without the documents that were deleted from its index in `folder`.

    Raises:
        DataError: nothing is left.
    """
    gone = deleted_documents(folder)
    kept = tuple(document for document in dataset.documents if document.doc_id not in gone)
    if len(kept) == len(dataset.documents):
        return dataset
    if not kept:
        raise DataError("every document of the corpus was deleted from the index: restore one with --restore.")
    absent = sorted(gone & {document.doc_id for document in dataset.documents})
    fingerprint = hashlib.sha256(json.dumps([dataset.fingerprint, absent]).encode()).hexdigest()[:16]
    return replace(dataset, documents=kept, fingerprint=fingerprint)


def delete_documents(dataset: Dataset, folder: Path, delete: Collection[str], restore: Collection[str]) -> None:
    """Note which documents the index in `folder` must not hold (any more, or again); `ensure_index` carries it out.

    Raises:
        DataError: an id is unknown; then nothing is noted.
    """
    if delete or restore:
        with locked(folder):
            change_deleted(folder, {document.doc_id for document in dataset.documents}, delete, restore)


def _embed_here(
    config: Config, version: Path, spec: IndexSpec, missing: Sequence[Shard], total: int, advance: Advance
) -> None:
    embedder, store = build_embedder(config), ChunkStore.open(version / CHUNKS)
    for done, shard in enumerate(missing, start=total - len(missing) + 1):
        embed_shard(version, store, shard, spec, embedder)
        advance(done, total)
