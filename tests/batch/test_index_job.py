"""The index job: built once, gone on with, and refused where it does not fit."""

import dataclasses
import json

import numpy as np
import pytest

from corag_ray.batch.index_job import ensure_index
from corag_ray.build import build_embedder, build_tokenizer, index_spec
from corag_ray.errors import ConfigError, DataError
from corag_ray.indexing import build_index
from corag_ray.indexing.build_index import CHUNKS, DENSE, TOKEN_OFFSETS, TOKEN_VECTORS, embed_shard, start_index
from corag_ray.indexing.open_index import read_manifest
from corag_ray.indexing.store import ChunkStore

pytestmark = [pytest.mark.ray, pytest.mark.models]


def test_an_index_holds_one_unit_vector_a_chunk_and_every_document(tiny_index, tiny_dataset):
    import faiss

    store = ChunkStore.open(tiny_index / CHUNKS)
    vectors = faiss.read_index(str(tiny_index / DENSE)).reconstruct_n(0, len(store))
    assert {chunk.doc_id for chunk in store.take(range(len(store)))} == {d.doc_id for d in tiny_dataset.documents}
    assert read_manifest(tiny_index)["chunks"] == len(store) == len(vectors)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    texts = {document.doc_id: document.text for document in tiny_dataset.documents}
    assert all(texts[c.doc_id][c.start : c.end] == c.text for c in store.take(range(len(store))))


def test_a_finished_index_is_not_touched_again(tiny_index, tiny_config, tiny_dataset):
    def times():
        return {path: path.stat().st_mtime_ns for path in tiny_index.rglob("*") if path.name != ".lock"}

    before = times()
    told = []
    assert ensure_index(tiny_config, tiny_dataset, tiny_index, lambda *done: told.append(done)) is False
    assert times() == before
    assert told == []


def test_an_index_of_other_settings_is_refused_by_name(tiny_index, tiny_config, tiny_dataset):
    other = tiny_config.model_copy(update={"chunking": dataclasses.replace(tiny_config.chunking, size_tokens=33)})
    with pytest.raises(DataError, match=r"made with chunking = .*24.*not .*33"):
        ensure_index(other, tiny_dataset, tiny_index)


def test_a_half_built_index_goes_on_where_it_was_and_ends_equal(
    ray_session, tiny_index, tiny_config, tiny_dataset, tmp_path, monkeypatch
):
    monkeypatch.setattr(build_index, "CHUNKS_A_SHARD", 5)
    spec = index_spec(tiny_config, tiny_dataset)
    first, *rest = start_index(tmp_path, tiny_dataset.documents, spec, build_tokenizer(tiny_config))
    assert len(rest) >= 2
    embed_shard(tmp_path, ChunkStore.open(tmp_path / CHUNKS), first, spec, build_embedder(tiny_config))
    told = []
    assert ensure_index(tiny_config, tiny_dataset, tmp_path, lambda *done: told.append(done)) is True
    total = 1 + len(rest)
    assert told == [(done, total) for done in range(1, total + 1)]
    for name in (CHUNKS, DENSE, TOKEN_VECTORS, TOKEN_OFFSETS, build_index.MANIFEST):  # shards leave no trace
        assert (tmp_path / name).read_bytes() == (tiny_index / name).read_bytes(), name


def test_a_plan_too_large_for_the_cluster_is_refused_before_anything_is_embedded(
    ray_session, tiny_config, tiny_dataset, tmp_path
):
    plan = tiny_config.plan.model_copy(update={"embed_actors": 40})
    with pytest.raises(ConfigError, match=r"would hang: 40 embed x 0\.5 \+ 1 for Ray Data's tasks = 21 CPUs"):
        ensure_index(tiny_config.model_copy(update={"plan": plan}), tiny_dataset, tmp_path)
    assert list((tmp_path / "shards").iterdir()) == []
    assert json.loads((tmp_path / "started.json").read_text())["corpus"] == tiny_dataset.fingerprint
