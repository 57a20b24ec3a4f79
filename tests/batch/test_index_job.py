"""The index job: built once, gone on with, and refused where it does not fit."""

import dataclasses
import json

import numpy as np
import pytest

from corag_ray.batch.index_job import delete_documents, ensure_index, without_deleted
from corag_ray.build import build_embedder, build_tokenizer, default_index_folder, index_spec
from corag_ray.errors import ConfigError, DataError
from corag_ray.indexing import build_index
from corag_ray.indexing.build_index import all_shards, embed_shard, start_version
from corag_ray.indexing.merge import CHUNKS, DENSE, TOKEN_OFFSETS, TOKEN_VECTORS
from corag_ray.indexing.open_index import open_index
from corag_ray.indexing.store import ChunkStore
from corag_ray.indexing.versions import MANIFEST, current_version, read_manifest
from corag_ray.types import Document

pytestmark = [pytest.mark.ray, pytest.mark.models]


def chunks_of(index):
    return ChunkStore.open(current_version(index) / CHUNKS)


def test_an_index_holds_one_unit_vector_a_chunk_and_every_document(tiny_index, tiny_dataset):
    import faiss

    store = chunks_of(tiny_index)
    vectors = faiss.read_index(str(current_version(tiny_index) / DENSE)).reconstruct_n(0, len(store))
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
    there = ensure_index(tiny_config, tiny_dataset, tiny_index, lambda *done: told.append(done))
    assert (there.changed, there.embedded, there.chunks) == (False, 0, len(chunks_of(tiny_index)))
    assert times() == before
    assert told == []


def test_an_index_of_other_settings_is_refused_by_name(tiny_index, tiny_config, tiny_dataset):
    other = tiny_config.model_copy(update={"chunking": dataclasses.replace(tiny_config.chunking, size_tokens=33)})
    with pytest.raises(DataError, match=r"made with chunking = .*24.*not .*33"):
        ensure_index(other, tiny_dataset, tiny_index)


def test_a_changed_corpus_keeps_its_folder_and_other_settings_have_another(tmp_path, tiny_config, tiny_dataset):
    folder = default_index_folder(tmp_path, tiny_config, tiny_dataset)
    assert default_index_folder(tmp_path, tiny_config, dataclasses.replace(tiny_dataset, fingerprint="x")) == folder
    other = tiny_config.model_copy(update={"chunking": dataclasses.replace(tiny_config.chunking, size_tokens=33)})
    assert default_index_folder(tmp_path, other, tiny_dataset) != folder


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


def test_an_update_embeds_what_changed_and_equals_a_fresh_build(ray_session, tiny_config, tiny_dataset, tmp_path):
    first, *others = tiny_dataset.documents
    changed = (*others[1:], dataclasses.replace(first, text=first.text + " It is old."), Document("new", "All new."))
    other = dataclasses.replace(tiny_dataset, documents=changed, fingerprint="changed")
    updated, fresh = tmp_path / "updated", tmp_path / "fresh"
    before = ensure_index(tiny_config, tiny_dataset, updated)
    after = ensure_index(tiny_config, other, updated)
    assert before.embedded == before.chunks
    assert 2 <= after.embedded <= 3  # the new document, and the last chunk of the changed one or one more
    ensure_index(tiny_config, other, fresh)
    for name in (CHUNKS, DENSE, TOKEN_VECTORS, TOKEN_OFFSETS):
        assert (current_version(updated) / name).read_bytes() == (current_version(fresh) / name).read_bytes(), name
    embedder = build_embedder(tiny_config)
    opened = [open_index(folder, index_spec(tiny_config, other), embedder, "hybrid") for folder in (updated, fresh)]
    found = [index.first_stage.search(["Who planted the first tea bushes?", "old"], 8) for index in opened]
    assert found[0] == found[1]


def test_a_document_deleted_by_id_stays_out_until_it_is_restored(ray_session, tiny_config, tiny_dataset, tmp_path):
    whole = ensure_index(tiny_config, tiny_dataset, tmp_path)
    gone = tiny_dataset.documents[0].doc_id
    delete_documents(tiny_dataset, tmp_path, [gone], [])
    left = without_deleted(tiny_dataset, tmp_path)
    assert [d.doc_id for d in left.documents] == [d.doc_id for d in tiny_dataset.documents[1:]]
    assert left.fingerprint != tiny_dataset.fingerprint
    assert left.questions == tiny_dataset.questions
    after = ensure_index(tiny_config, left, tmp_path)
    assert (after.embedded, after.changed) == (0, True)
    assert gone not in {chunk.doc_id for chunk in chunks_of(tmp_path).take(range(after.chunks))}
    delete_documents(tiny_dataset, tmp_path, [], [gone])
    assert without_deleted(tiny_dataset, tmp_path) == tiny_dataset
    assert ensure_index(tiny_config, tiny_dataset, tmp_path).version == whole.version


def test_a_corpus_whose_every_document_was_deleted_is_refused(tiny_dataset, tmp_path):
    delete_documents(tiny_dataset, tmp_path, [d.doc_id for d in tiny_dataset.documents], [])
    with pytest.raises(DataError, match="every document of the corpus was deleted"):
        without_deleted(tiny_dataset, tmp_path)


def test_a_plan_too_large_for_the_cluster_is_refused_before_anything_is_embedded(
    ray_session, tiny_config, tiny_dataset, tmp_path
):
    plan = tiny_config.plan.model_copy(update={"embed_actors": 40})
    with pytest.raises(ConfigError, match=r"would hang: 40 embed x 0\.5 \+ 1 for Ray Data's tasks = 21 CPUs"):
        ensure_index(tiny_config.model_copy(update={"plan": plan}), tiny_dataset, tmp_path)
    unfinished = tmp_path / "versions" / "000001" / "unfinished"
    assert list((unfinished / "shards").iterdir()) == []
    assert json.loads((unfinished / "started.json").read_text())["corpus"] == tiny_dataset.fingerprint
