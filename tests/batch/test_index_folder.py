"""The index of a data set: built once, brought up to date, and refused where it does not fit."""

import dataclasses

import numpy as np
import pytest

from corag_ray.batch.index_folder import delete_documents, ensure_index, without_deleted
from corag_ray.build import build_embedder, default_index_folder, index_spec
from corag_ray.errors import DataError
from corag_ray.indexing.merge import CHUNKS, DENSE, TOKEN_OFFSETS, TOKEN_VECTORS
from corag_ray.indexing.open_index import open_index
from corag_ray.indexing.store import ChunkStore
from corag_ray.indexing.versions import current_version, read_manifest
from corag_ray.types import Document

pytestmark = pytest.mark.models


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


def test_an_update_embeds_what_changed_and_equals_a_fresh_build(tiny_config, tiny_dataset, tmp_path):
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


def test_a_document_deleted_by_id_stays_out_until_it_is_restored(tiny_config, tiny_dataset, tmp_path):
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


def test_a_shard_is_embedded_without_ray(tiny_config, tiny_dataset, tmp_path, monkeypatch):
    told = []
    updated = ensure_index(tiny_config, tiny_dataset, tmp_path, lambda *done: told.append(done))  # `ray.init` raises
    assert updated.embedded == updated.chunks
    assert told == [(0, 1), (1, 1)]
