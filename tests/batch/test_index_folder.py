"""The index of a data set: built once, brought up to date, and refused where it does not fit."""

import dataclasses
import json
import logging
import re
from pathlib import Path

import numpy as np
import pytest
from tiny_run import config_values, write_folder

from corag_ray.batch import index_folder, index_job
from corag_ray.batch.index_folder import ensure_index, open_corpus, without_documents
from corag_ray.batch.progress import stages
from corag_ray.build import build_embedder
from corag_ray.config import Config
from corag_ray.datasets.load import DATA_VARIABLE
from corag_ray.errors import DataError
from corag_ray.identity import index_spec
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


def write_in(parent, name):
    parent.mkdir()
    return write_folder(parent / name)


def config_of(data, **changes):
    return Config.model_validate(config_values(data) | changes)


def test_a_changed_corpus_keeps_its_folder_and_other_settings_have_another(tmp_path):
    data = write_folder(tmp_path / "tiny")
    _, folder = open_corpus(tmp_path, config_of(data))
    with (data / "corpus.jsonl").open("a") as corpus:
        corpus.write(json.dumps({"passage_id": "new", "text": "All new."}) + "\n")
    assert open_corpus(tmp_path, config_of(data))[1] == folder
    assert open_corpus(tmp_path, config_of(data, chunking={"size_tokens": 33}))[1] != folder


def test_a_folder_is_the_same_however_it_is_named_and_another_one_of_its_name_has_its_own_index(tmp_path, monkeypatch):
    first, second = (write_in(tmp_path / parent, "tiny") for parent in ("a", "b"))
    monkeypatch.setenv(DATA_VARIABLE, str(first.parent))
    monkeypatch.chdir(tmp_path)
    places = [open_corpus(tmp_path, config_of(name))[1] for name in (first, "tiny", "a/../a/tiny", second)]
    assert places[0] == places[1] == places[2] != places[3]
    assert {place.name.rsplit("-", 2)[0] for place in places} == {"tiny"}
    assert places[0].name.split("-")[2] == places[3].name.split("-")[2]  # the settings are the same


def test_several_names_are_one_corpus_that_is_told_by_the_places_of_all(tmp_path):
    a, b, c = (write_in(tmp_path / parent, name) for parent, name in (("one", "x"), ("two", "y"), ("other", "y")))
    together = [open_corpus(tmp_path, config_of(names))[1].name for names in (f"{a},{b}", f"{a}, {b}", f"{a},{c}")]
    assert together[0] == together[1] != together[2]
    assert [name.split("-")[0] for name in together] == ["x+y"] * 3


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


def test_a_document_deleted_by_id_stays_out_and_is_named_until_it_is_restored(
    tiny_config, tiny_dataset, tmp_path, caplog
):
    data, folder = open_corpus(tmp_path, tiny_config)
    assert data == tiny_dataset
    whole = ensure_index(tiny_config, data, folder)
    gone = data.documents[0].doc_id
    left, same = open_corpus(tmp_path, tiny_config, delete=[gone])
    assert same == folder
    assert f"tiny: deleted documents that stay out: 1 ('{gone}' first)" in caplog.text
    assert [d.doc_id for d in left.documents] == [d.doc_id for d in data.documents[1:]]
    assert open_corpus(tmp_path, tiny_config) == (left, folder)
    after = ensure_index(tiny_config, left, folder)
    assert (after.embedded, after.changed) == (0, True)
    assert gone not in {chunk.doc_id for chunk in chunks_of(folder).take(range(after.chunks))}
    assert open_corpus(tmp_path, tiny_config, restore=[gone]) == (data, folder)
    assert ensure_index(tiny_config, data, folder).version == whole.version


def test_a_deletion_holds_under_other_settings_and_for_that_folder_of_the_name_alone(tmp_path):
    data, other = (write_in(tmp_path / parent, "tiny") for parent in ("one", "other"))
    open_corpus(tmp_path, config_of(data), delete=["tea"])
    changes = ({"chunking": {"size_tokens": 33}}, {"deterministic": False, "dtype": "bfloat16"})
    for config in (config_of(data), *(config_of(data, **change) for change in changes)):
        for questions in (True, False):
            assert "tea" not in {d.doc_id for d in open_corpus(tmp_path, config, questions=questions)[0].documents}
    assert "tea" in {d.doc_id for d in open_corpus(tmp_path, config_of(other))[0].documents}


def ids_left(root, names, **changes):
    """The documents of the corpus that these names are, after these deletions and restorations."""
    return {document.doc_id for document in open_corpus(root, config_of(names), **changes)[0].documents}


def test_a_deletion_belongs_to_its_set_in_any_company_and_order(tmp_path):
    a, b = (write_in(tmp_path / parent, name) for parent, name in (("one", "a"), ("two", "b")))
    ids_left(tmp_path, a, delete=["tea"])
    for names in (f"{a},{b}", f"{b},{a}"):
        assert {"a/tea", "b/tea", "a/clock"} & ids_left(tmp_path, names) == {"b/tea", "a/clock"}
    ids_left(tmp_path, f"{b},{a}", delete=["a/clock"], restore=["a/tea"])
    for names, kept in ((a, {"tea"}), (b, {"tea", "clock"}), (f"{a},{b}", {"a/tea", "b/tea", "b/clock"})):
        assert {name for name in ids_left(tmp_path, names) if name.endswith(("tea", "clock"))} == kept
    with pytest.raises(DataError, match="holds no document 'tea'"):
        ids_left(tmp_path, f"{a},{b}", delete=["tea"])


def test_a_set_whose_every_document_was_deleted_leaves_the_rest_of_its_corpus(tmp_path):
    a, b = (write_in(tmp_path / parent, name) for parent, name in (("one", "a"), ("two", "b")))
    left = ids_left(tmp_path, f"{a},{b}", delete=[f"a/{name}" for name in ids_left(tmp_path, a)])
    assert left == {f"b/{name}" for name in ids_left(tmp_path, b)}


def test_with_and_without_questions_what_is_left_is_one_corpus(tiny_config, tmp_path):
    open_corpus(tmp_path, tiny_config, delete=["clock", "tea"])
    asked, bare = (open_corpus(tmp_path, tiny_config, questions=questions)[0] for questions in (True, False))
    assert asked.fingerprint == bare.fingerprint


def test_evidence_in_a_deleted_document_is_missing_and_no_gold_passage(tiny_dataset):
    # "harbour" holds the evidence of q8 and q6, one passage each.
    left = without_documents(tiny_dataset, {"harbour", "unknown"})
    assert [q.question_id for q in left.questions] == [q.question_id for q in tiny_dataset.questions]
    assert {q.question_id for q in left.questions if not q.evidence} == {"q8", "q6"}
    assert left.missing_evidence == tiny_dataset.missing_evidence + 2
    assert left.fingerprint != tiny_dataset.fingerprint
    assert left.questions_fingerprint != tiny_dataset.questions_fingerprint
    assert without_documents(tiny_dataset, {"unknown"}) == tiny_dataset


def test_whatever_makes_an_index_opens_its_corpus_without_deleted_documents():
    root = Path(__file__).parents[2]
    texts = {p: p.read_text("utf-8") for folder in ("corag_ray", "jobs") for p in (root / folder).rglob("*.py")}
    defined = {"index_folder.py", "made_index.py"}
    calls = re.compile(r"(ensure|made)_index\(")
    makers = [path for path, text in texts.items() if calls.search(text) and path.name not in defined]
    assert {path.name for path in makers} >= {"cli.py", "experiment.py", "fit_calibration.py", "bench_overhead.py"}
    assert [p for p in makers if "open_corpus(" not in texts[p] or "load_dataset" in texts[p]] == []


def test_a_corpus_whose_every_document_was_deleted_is_refused(tiny_config, tiny_dataset, tmp_path):
    with pytest.raises(DataError, match="every document of the corpus was deleted"):
        open_corpus(tmp_path, tiny_config, delete=[d.doc_id for d in tiny_dataset.documents])


def test_a_shard_is_embedded_without_ray(tiny_config, tiny_dataset, tmp_path, monkeypatch):
    told = []
    updated = ensure_index(tiny_config, tiny_dataset, tmp_path, lambda *done: told.append(done))  # `ray.init` raises
    assert updated.embedded == updated.chunks
    assert told == [(0, 1), (1, 1)]


@pytest.mark.parametrize(("shards_here", "last"), [(1, "loading models"), (0, "importing Ray")])
def test_whoever_shows_progress_is_told_what_is_done_before_the_first_shard(
    tiny_config, tiny_dataset, tmp_path, monkeypatch, caplog, shards_here, last
):
    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(index_folder, "SHARDS_WITHOUT_RAY", shards_here)
    monkeypatch.setattr(index_folder, "build_embedder", stop)
    monkeypatch.setattr(index_job, "embed_with_ray", stop)
    with caplog.at_level(logging.INFO, stages.name), pytest.raises(KeyboardInterrupt):
        ensure_index(tiny_config, tiny_dataset, tmp_path)
    assert caplog.messages == ["opening the index", "cutting chunks", last]
