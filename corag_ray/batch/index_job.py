"""Embeds the shards of an index with Ray Data: an actor pool, each shard a call."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray

from corag_ray.batch.cluster import ACTOR_OPTIONS, as_done, ray_cluster
from corag_ray.batch.preflight import check_cpus
from corag_ray.batch.progress import Advance
from corag_ray.build import build_embedder
from corag_ray.config import Config
from corag_ray.indexing.build_index import Shard, embed_shard
from corag_ray.indexing.merge import CHUNKS
from corag_ray.indexing.store import ChunkStore
from corag_ray.indexing.versions import IndexSpec


def embed_with_ray(
    config: Config, version: Path, spec: IndexSpec, missing: Sequence[Shard], total: int, advance: Advance
) -> None:
    """Write the vectors of the missing shards, of so many in all; each is on disk as soon as `advance` is told.

    Raises:
        ConfigError: the plan cannot run on this cluster.
        CoragError: a worker failed.
    """
    plan = config.plan
    done = total - len(missing)
    with ray_cluster(functools.partial(check_cpus, {"embed": plan.embed_actors}, plan)):
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
