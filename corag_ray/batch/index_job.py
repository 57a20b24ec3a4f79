"""Builds an index with Ray Data: an actor pool embeds shards of chunks; a killed build goes on where it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray

from corag_ray.batch.cluster import ACTOR_OPTIONS, Advance, as_done, ray_cluster
from corag_ray.batch.folder_lock import locked
from corag_ray.batch.preflight import check_cpus
from corag_ray.build import build_embedder, build_tokenizer, index_spec
from corag_ray.config import Config
from corag_ray.datasets.assemble import Dataset
from corag_ray.indexing.build_index import (
    CHUNKS,
    IndexSpec,
    Shard,
    all_shards,
    check_spec,
    embed_shard,
    finish_index,
    start_index,
)
from corag_ray.indexing.open_index import is_finished, read_manifest
from corag_ray.indexing.store import ChunkStore


def ensure_index(config: Config, dataset: Dataset, folder: Path, advance: Advance = lambda done, total: None) -> bool:
    """Build the index of a corpus in `folder`, or go on with a half-built one; True if there was anything to do.

    Raises:
        DataError: the folder holds an index made with other settings, or cannot be written.
        ConfigError: the plan cannot run on this cluster.
    """
    spec = index_spec(config, dataset)
    if _is_there(folder, spec):
        return False  # without a lock: any number of readers share it
    with locked(folder):
        if _is_there(folder, spec):
            return False
        missing = start_index(folder, dataset.documents, spec, build_tokenizer(config))
        total = len(all_shards(folder))
        advance(total - len(missing), total)
        if missing:
            _embed(config, folder.resolve(), spec, missing, lambda done: advance(total - len(missing) + done, total))
        finish_index(folder, spec)
    return True


def _is_there(folder: Path, spec: IndexSpec) -> bool:
    if is_finished(folder):
        check_spec(folder, read_manifest(folder), spec)
        return True
    return False


def _embed(
    config: Config, folder: Path, spec: IndexSpec, missing: Sequence[Shard], advance: Callable[[int], None]
) -> None:
    plan = config.plan
    with ray_cluster() as cpus:
        check_cpus({"embed": plan.embed_actors}, plan, cpus)
        shards = ray.data.from_items([asdict(shard) for shard in missing], override_num_blocks=len(missing))
        embedded = shards.map_batches(
            _EmbedStage,
            fn_constructor_args=(config, folder, spec),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=plan.embed_actors),
            num_cpus=plan.cpus_an_actor,
            **ACTOR_OPTIONS,
        )
        done = 0
        for output in as_done(embedded):
            done += len(output["number"])
            advance(done)


class _EmbedStage:
    """Ray Data actor: a shard a call."""

    def __init__(self, config: Config, folder: Path, spec: IndexSpec) -> None:
        self._embedder = build_embedder(config)
        self._store = ChunkStore.open(folder / CHUNKS)
        self._folder = folder
        self._spec = spec

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        shard = Shard(*(int(batch[key][0]) for key in ("number", "start", "stop")))
        embed_shard(self._folder, self._store, shard, self._spec, self._embedder)
        return {"number": batch["number"]}
