"""Embedding with Ray: goes on where a killed build was, and is refused where its plan cannot run."""

import json

import pytest

from corag_ray.batch.index_folder import ensure_index
from corag_ray.build import build_embedder, build_tokenizer
from corag_ray.errors import ConfigError
from corag_ray.identity import index_spec
from corag_ray.indexing import build_index
from corag_ray.indexing.build_index import all_shards, embed_shard, start_version
from corag_ray.indexing.merge import CHUNKS, DENSE, TOKEN_OFFSETS, TOKEN_VECTORS
from corag_ray.indexing.store import ChunkStore
from corag_ray.indexing.versions import MANIFEST, current_version

pytestmark = [pytest.mark.ray, pytest.mark.models]


def test_a_half_built_index_goes_on_where_it_was_and_ends_equal(
    ray_session, tiny_index, tiny_config, tiny_dataset, tmp_path, monkeypatch
):
    monkeypatch.setattr(build_index, "CHUNKS_A_SHARD", 5)
    spec = index_spec(tiny_config, tiny_dataset)
    version = start_version(tmp_path, tiny_dataset.documents, spec, build_tokenizer(tiny_config))
    first, *rest = all_shards(version)
    assert len(rest) >= 2
    embed_shard(version, ChunkStore.open(version / CHUNKS), first, spec, build_embedder(tiny_config))
    told = []
    updated = ensure_index(tiny_config, tiny_dataset, tmp_path, lambda *done: told.append(done))
    assert updated.embedded == updated.chunks - 5
    total = 1 + len(rest)
    assert told == [(done, total) for done in range(1, total + 1)]
    for name in (CHUNKS, DENSE, TOKEN_VECTORS, TOKEN_OFFSETS, MANIFEST):  # shards leave no trace
        assert (version / name).read_bytes() == (current_version(tiny_index) / name).read_bytes(), name


def test_a_plan_too_large_for_the_cluster_is_refused_before_anything_is_embedded(
    ray_session, tiny_config, tiny_dataset, tmp_path, monkeypatch
):
    monkeypatch.setattr(build_index, "CHUNKS_A_SHARD", 5)
    plan = tiny_config.plan.model_copy(update={"embed_actors": 40})
    with pytest.raises(ConfigError, match=r"would hang: 40 embed x 0\.5 \+ 1 for Ray Data's tasks = 21 CPUs"):
        ensure_index(tiny_config.model_copy(update={"plan": plan}), tiny_dataset, tmp_path)
    unfinished = tmp_path / "versions" / "000001" / "unfinished"
    assert list((unfinished / "shards").iterdir()) == []
    assert json.loads((unfinished / "started.json").read_text())["corpus"] == tiny_dataset.fingerprint
