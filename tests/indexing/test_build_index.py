"""An index folder: built in resumable steps, opened only as what it is, and free of pickles."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tiny_index import DIM, SPEC, Hashes, Words, build, contents

from corag_ray.errors import DataError
from corag_ray.indexing.build_index import (
    CHUNKS_A_SHARD,
    all_shards,
    embed_shard,
    keeps_token_vectors,
    missing_shards,
    start_version,
)
from corag_ray.indexing.chunking import Chunking
from corag_ray.indexing.open_index import open_index
from corag_ray.indexing.store import ChunkStore
from corag_ray.indexing.token_vectors import TokenVectorFormat
from corag_ray.indexing.versions import UNFINISHED, IndexSpec, current_version, is_finished, read_manifest
from corag_ray.types import Document

DOCUMENTS = [Document(f"d{n}", " ".join(f"w{n * 13 + i}" for i in range(20))) for n in range(90)]
"""20 words in chunks of three: 7 chunks each, 630 in all, three shards."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    build(folder, DOCUMENTS)
    return folder


def start(folder, documents=DOCUMENTS, spec=SPEC):
    version = start_version(folder, documents, spec, Words())
    return version, ChunkStore.open(version / "chunks.arrow")


def test_shards_cover_every_chunk_once_in_order(tmp_path):
    version, _ = start(tmp_path)
    shards = all_shards(version)
    assert [(s.start, s.stop) for s in shards] == [(0, 256), (256, 512), (512, 630)]
    assert CHUNKS_A_SHARD == 256
    assert [s.number for s in shards] == [0, 1, 2]
    assert missing_shards(version) == shards


def test_a_second_start_leaves_everything_alone_and_finds_only_the_missing_shards(tmp_path):
    version, store = start(tmp_path)
    shards = all_shards(version)
    for shard in shards:
        embed_shard(version, store, shard, SPEC, Hashes())
    shards[1].path(version).unlink()
    before = {f: f.stat().st_mtime_ns for f in sorted(tmp_path.rglob("*")) if f.is_file()}
    again, _ = start(tmp_path, iter([]))  # the documents are not read again
    assert again == version
    assert missing_shards(version) == [shards[1]]
    assert {f: f.stat().st_mtime_ns for f in sorted(tmp_path.rglob("*")) if f.is_file()} == before


def test_an_index_built_in_two_goes_is_the_same_to_the_byte(tmp_path, finished):
    embedder = Hashes()
    version, store = start(tmp_path)
    embed_shard(version, store, all_shards(version)[2], SPEC, embedder)
    assert build(tmp_path, DOCUMENTS, embedder=embedder).embedded == 512  # the third shard's 118 were there
    assert sorted(embedder.embedded) == sorted(store.iter_texts())  # every chunk once
    assert contents(tmp_path) == contents(finished)


def test_a_shard_half_written_does_not_count(tmp_path):
    version, _ = start(tmp_path)
    shards = all_shards(version)
    shards[0].path(version).with_suffix(".partial").write_bytes(b"half")
    shards[1].path(version).write_bytes(b"half")
    assert missing_shards(version) == shards


def test_a_half_built_index_of_another_corpus_is_begun_anew(tmp_path):
    version, store = start(tmp_path)
    embed_shard(version, store, all_shards(version)[0], SPEC, Hashes())
    again, other = start(tmp_path, DOCUMENTS[:1], replace(SPEC, corpus="corpus-2"))
    assert again == version
    assert len(other) == 7
    assert missing_shards(again) == all_shards(again)


OTHERS = {
    "chunking": Chunking(4),
    "embedder": "hashes 2",
    "dtype": "bfloat16",
    "cost_tokenizer": "words 2",
    "token_vectors": TokenVectorFormat(up_to_mb=99),
    "schema_version": 0,
}


def test_every_field_of_the_spec_but_the_corpus_is_a_setting():
    assert {*OTHERS, "corpus"} == set(IndexSpec.__dataclass_fields__)


@pytest.mark.parametrize("key", OTHERS)
def test_an_index_made_otherwise_is_refused_by_name_when_opened_updated_and_resumed(tmp_path, finished, key):
    other = replace(SPEC, **{key: OTHERS[key]})
    with pytest.raises(DataError, match=f"was made with {key} = .*: delete that folder"):
        open_index(finished, other, Hashes(), "dense")
    with pytest.raises(DataError, match=f"was made with {key} = "):
        build(finished, DOCUMENTS, other)
    start(tmp_path)
    with pytest.raises(DataError, match=f"was made with {key} = "):
        start(tmp_path, spec=other)


def test_an_index_of_another_corpus_is_not_opened(finished):
    with pytest.raises(DataError, match="was made of another corpus: bring it up to date with `corag index`"):
        open_index(finished, replace(SPEC, corpus="corpus-2"), Hashes(), "dense")


def test_a_finished_index_opens_with_its_counts_and_without_its_shards(finished):
    index = open_index(finished, SPEC, Hashes(), "dense")
    assert len(index.store) == 630
    manifest = read_manifest(finished)
    counts = ("documents", "chunks", "dim", "token_vectors_stored", "windowed_chunks")
    assert {k: manifest[k] for k in counts} == {
        "documents": 90,
        "chunks": 630,
        "dim": DIM,
        "token_vectors_stored": True,
        "windowed_chunks": 540,  # six of a document's seven chunks have three words, above the window of two
    }
    assert index.version == manifest["version"]
    assert not (current_version(finished) / UNFINISHED).exists()
    assert list(finished.rglob("*.partial")) == []


@pytest.mark.parametrize("kind", ["dense", "lexical", "hybrid"])
def test_every_first_stage_finds_a_chunk_by_its_own_text(finished, kind):
    index = open_index(finished, SPEC, Hashes(), kind)
    for row in (0, 255, 256, 511, 512, 629):
        [chunk] = index.store.take([row])
        assert index.first_stage.search([chunk.text], 5)[0][0][0] == row


def test_dense_vectors_are_those_of_the_chunks_in_row_order(finished):
    index = open_index(finished, SPEC, Hashes(), "dense")
    vectors = Hashes().embed(list(index.store.iter_texts()))
    query = Hashes().embed(["w3 w700"])[0]
    found = index.first_stage.search(["w3 w700"], 630)[0]
    assert sorted(row for row, _ in found) == list(range(630))
    np.testing.assert_allclose([score for _, score in found], [vectors[row] @ query for row, _ in found], atol=1e-6)


def test_token_vectors_are_the_embedders_in_float16_whatever_rows_are_asked_for(finished):
    index = open_index(finished, SPEC, Hashes(), "dense")
    rows = [629, 0, 256, 255, 0, 6]
    stored = index.token_vectors(rows)
    for row, vectors in zip(rows, stored, strict=True):
        [chunk] = index.store.take([row])
        expected = Hashes().embed_with_tokens([chunk.text])[1][0].astype(np.float16)
        assert vectors.dtype == np.float32
        np.testing.assert_array_equal(vectors, expected.astype(np.float32))
    assert [len(v) for v in stored] == [2, 3, 3, 3, 3, 2]  # rows 6 and 629 end their documents: 20 = 6 x 3 + 2


def test_a_limit_of_zero_stores_no_token_vectors(tmp_path):
    spec = replace(SPEC, token_vectors=TokenVectorFormat(up_to_mb=0))
    build(tmp_path, DOCUMENTS, spec)
    assert open_index(tmp_path, spec, Hashes(), "dense").token_vectors is None
    assert list(tmp_path.rglob("token_*")) == []


def test_the_limit_is_on_the_bytes_of_all_token_vectors(tmp_path):
    # Costs: 6 chunks of 3 words and one of 2 a document, each with the word "99." = 27 a document, 2430 in all.
    # A component is 2 bytes: 2430 x 2 x 206 = 1,001,160 bytes with 206 dimensions, 996,300 with 205.
    _, store = start(tmp_path)
    one_mb = replace(SPEC, token_vectors=TokenVectorFormat(up_to_mb=1))
    assert store.total_cost == 2430
    assert keeps_token_vectors(store, one_mb, 205)
    assert not keeps_token_vectors(store, one_mb, 206)
    in_int8 = replace(SPEC, token_vectors=TokenVectorFormat("int8", up_to_mb=1))  # 2430 x 411 = 998,730 bytes
    assert keeps_token_vectors(store, in_int8, 411)
    assert not keeps_token_vectors(store, in_int8, 412)


def test_no_file_of_an_index_is_pickled(finished):
    files = [f for f in finished.rglob("*") if f.is_file()]
    arrays = [f for f in files if f.suffix == ".npy"]
    assert len(arrays) >= 2
    for file in arrays:
        np.load(file, allow_pickle=False)
    assert not any(f.suffix in (".pkl", ".pickle") or f.read_bytes()[:1] == b"\x80" for f in files)
    for file in files:
        if file.suffix == ".json":
            json.loads(file.read_text("utf-8"))


def test_a_folder_without_a_finished_index_is_refused(tmp_path):
    start(tmp_path)
    assert not is_finished(tmp_path)
    with pytest.raises(DataError, match="holds no finished index: build it with `corag index`"):
        open_index(tmp_path, SPEC, Hashes(), "dense")


def test_a_corpus_of_blank_documents_is_refused_and_can_be_tried_again(tmp_path):
    for _ in range(2):
        with pytest.raises(DataError, match="every document is blank"):
            build(tmp_path, [Document("a", " "), Document("b", "\n")])


def test_a_folder_that_cannot_be_written_is_a_data_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="cannot write the index to"):
        build(tmp_path / "file" / "index", DOCUMENTS)


def test_the_same_document_twice_is_refused_with_its_id(tmp_path):
    with pytest.raises(DataError, match="two documents have the id 'd3'"):
        build(tmp_path, [*DOCUMENTS, DOCUMENTS[3]])


@pytest.mark.parametrize("damage", ["", "000009", "\x00", "../other"])
def test_a_pointer_that_names_no_version_is_refused_in_one_sentence(tmp_path, damage):
    build(tmp_path, DOCUMENTS[:1])
    (tmp_path / "CURRENT").write_text(damage)
    with pytest.raises(DataError, match="CURRENT names a version that is not there: delete the folder"):
        open_index(tmp_path, SPEC, Hashes(), "dense")
