"""Builds and updates an index with Ray Data: an actor pool embeds shards; a killed build goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import ray

from corag_ray.batch.cluster import ACTOR_OPTIONS, Advance, as_done, ray_cluster
from corag_ray.batch.folder_lock import locked
from corag_ray.batch.preflight import check_cpus
from corag_ray.build import build_embedder, build_tokenizer, index_spec
from corag_ray.config import Config
from corag_ray.datasets.assemble import Dataset
from corag_ray.errors import DataError
from corag_ray.indexing.build_index import Shard, Updated, embed_shard, unchanged, update_index
from corag_ray.indexing.deleted import change_deleted, deleted_documents
from corag_ray.indexing.merge import CHUNKS
from corag_ray.indexing.store import ChunkStore
from corag_ray.indexing.versions import IndexSpec


def ensure_index(
    config: Config, dataset: Dataset, folder: Path, advance: Advance = lambda done, total: None
) -> Updated:
    """Make the index in `folder` one of this corpus: built, brought up to date, or gone on with where it was.

    Raises:
        DataError: the folder holds an index made with other settings, or cannot be written.
        ConfigError: the plan cannot run on this cluster.
    """
    spec = index_spec(config, dataset)
    if (there := unchanged(folder, spec)) is not None:
        return there  # without a lock: any number of readers share it

    def embed(version: Path, missing: Sequence[Shard], total: int) -> None:
        _embed(config, version.resolve(), spec, missing, total, advance)

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


def _embed(
    config: Config, version: Path, spec: IndexSpec, missing: Sequence[Shard], total: int, advance: Advance
) -> None:
    plan = config.plan
    done = total - len(missing)
    advance(done, total)
    with ray_cluster() as cpus:
        check_cpus({"embed": plan.embed_actors}, plan, cpus)
        shards = ray.data.from_items([asdict(shard) for shard in missing], override_num_blocks=len(missing))
        embedded = shards.map_batches(
            _EmbedStage,
            fn_constructor_args=(config, version, spec),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=plan.embed_actors),
            num_cpus=plan.cpus_an_actor,
            **ACTOR_OPTIONS,
        )
        for output in as_done(embedded):
            done += len(output["number"])
            advance(done, total)


class _EmbedStage:
    """Ray Data actor: a shard a call."""

    def __init__(self, config: Config, version: Path, spec: IndexSpec) -> None:
        self._embedder = build_embedder(config)
        self._store = ChunkStore.open(version / CHUNKS)
        self._version = version
        self._spec = spec

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        shard = Shard(*(int(batch[key][0]) for key in ("number", "start", "stop")))
        embed_shard(self._version, self._store, shard, self._spec, self._embedder)
        return {"number": batch["number"]}
