"""An index folder: built in resumable steps, opened only as what it is, and free of pickles."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from corag_ray.errors import DataError
from corag_ray.indexing.build_index import (
    CHUNKS_A_SHARD,
    IndexSpec,
    all_shards,
    embed_shard,
    finish_index,
    start_index,
)
from corag_ray.indexing.chunking import Chunking
from corag_ray.indexing.open_index import is_finished, open_index, read_manifest
from corag_ray.indexing.store import ChunkStore
from corag_ray.types import Document

DIM = 8
SPEC = IndexSpec("corpus-1", Chunking(3), "hashes 1", "float32", "words 1", store_token_vectors_up_to_mb=100)
DOCUMENTS = [Document(f"d{n}", " ".join(f"w{n * 13 + i}" for i in range(20))) for n in range(90)]
"""20 words in chunks of three: 7 chunks each, 630 in all, three shards."""


class Words:
    """One token a word."""

    name, context_window = "words", 1000

    def count(self, texts):
        return [len(text.split()) for text in texts]

    def offsets(self, texts):
        starts = []
        for text in texts:
            words, position = [], 0
            for word in text.split():
                position = text.index(word, position)
                words.append(position)
                position += len(word)
            starts.append(words)
        return starts


class Hashes:
    """A word's vector is made of its hash, a text's is the sum of its words', all of unit length."""

    dim = DIM

    def __init__(self):
        self.windowed, self.embedded = 0, []

    def embed_with_tokens(self, texts):
        self.embedded += texts
        self.windowed += sum("w7" in text.split() for text in texts)
        tokens = [np.stack([vector_of(word) for word in text.split()]) for text in texts]
        sums = np.array([t.sum(axis=0) for t in tokens], dtype=np.float32).reshape(-1, DIM)
        return sums / np.linalg.norm(sums, axis=1, keepdims=True), tokens

    def embed(self, texts):
        return self.embed_with_tokens(texts)[0]


def vector_of(word):
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")
    vector = np.random.default_rng(seed).normal(size=DIM).astype(np.float32)
    return vector / np.linalg.norm(vector)


def build(folder, spec=SPEC, embedder=None):
    embedder = embedder or Hashes()
    shards = start_index(folder, DOCUMENTS, spec, Words())
    store = ChunkStore.open(folder / "chunks.arrow")
    for shard in shards:
        assert embed_shard(folder, store, shard, spec, embedder) == shard.stop - shard.start
    finish_index(folder, spec)
    return embedder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    build(folder)
    return folder


def test_shards_cover_every_chunk_once_in_order(tmp_path):
    shards = start_index(tmp_path, DOCUMENTS, SPEC, Words())
    assert [(s.start, s.stop) for s in shards] == [(0, 256), (256, 512), (512, 630)]
    assert CHUNKS_A_SHARD == 256
    assert [s.number for s in shards] == [0, 1, 2]


def test_a_second_start_returns_only_the_shards_that_are_missing_and_leaves_the_others_alone(tmp_path):
    store_of = Hashes()
    shards = start_index(tmp_path, DOCUMENTS, SPEC, Words())
    store = ChunkStore.open(tmp_path / "chunks.arrow")
    for shard in shards:
        embed_shard(tmp_path, store, shard, SPEC, store_of)
    shards[1].path(tmp_path).unlink()
    before = {f: (f.stat().st_mtime_ns, f.read_bytes()) for f in sorted(tmp_path.rglob("*")) if f.is_file()}

    missing = start_index(tmp_path, iter([]), SPEC, Words())  # the documents are not read again

    assert missing == [shards[1]]
    assert {f: (f.stat().st_mtime_ns, f.read_bytes()) for f in sorted(tmp_path.rglob("*")) if f.is_file()} == before


def test_an_index_built_in_two_goes_is_the_same_to_the_byte(tmp_path, finished):
    embedder = Hashes()
    shards = start_index(tmp_path, DOCUMENTS, SPEC, Words())
    store = ChunkStore.open(tmp_path / "chunks.arrow")
    embed_shard(tmp_path, store, shards[2], SPEC, embedder)
    build(tmp_path, embedder=embedder)
    assert sorted(embedder.embedded) == sorted(store.texts(0, len(store)))  # every chunk once
    files = {f.relative_to(finished) for f in finished.rglob("*") if f.is_file()}
    assert files == {f.relative_to(tmp_path) for f in tmp_path.rglob("*") if f.is_file()}
    assert all((tmp_path / f).read_bytes() == (finished / f).read_bytes() for f in files)


def test_a_shard_half_written_does_not_count(tmp_path):
    shards = start_index(tmp_path, DOCUMENTS, SPEC, Words())
    shards[0].path(tmp_path).with_suffix(".partial").write_bytes(b"half")
    assert start_index(tmp_path, DOCUMENTS, SPEC, Words()) == shards


OTHERS = {
    "corpus": "corpus-2",
    "chunking": Chunking(4),
    "embedder": "hashes 2",
    "dtype": "bfloat16",
    "cost_tokenizer": "words 2",
    "store_token_vectors_up_to_mb": 99,
    "schema_version": 0,
}


def test_every_field_of_the_spec_is_compared():
    assert set(OTHERS) == set(IndexSpec.__dataclass_fields__)


@pytest.mark.parametrize("key", OTHERS)
def test_an_index_made_otherwise_is_refused_by_name_when_opened_and_when_resumed(tmp_path, finished, key):
    other = replace(SPEC, **{key: OTHERS[key]})
    with pytest.raises(DataError, match=f"was made with {key} = "):
        open_index(finished, other, Hashes(), "dense")
    start_index(tmp_path, DOCUMENTS, SPEC, Words())
    with pytest.raises(DataError, match=f"was made with {key} = "):
        start_index(tmp_path, DOCUMENTS, other, Words())


def test_a_finished_index_opens_with_its_counts_and_without_its_shards(finished):
    index = open_index(finished, SPEC, Hashes(), "dense")
    assert len(index.store) == 630
    manifest = read_manifest(finished)
    assert {k: manifest[k] for k in ("chunks", "dim", "token_vectors", "windowed_chunks")} == {
        "chunks": 630,
        "dim": DIM,
        "token_vectors": True,
        "windowed_chunks": 1,  # the one chunk that holds the word w7
    }
    assert not (finished / "shards").exists()
    assert list(finished.rglob("*.partial")) == []


@pytest.mark.parametrize("kind", ["dense", "lexical", "hybrid"])
def test_every_first_stage_finds_a_chunk_by_its_own_text(finished, kind):
    index = open_index(finished, SPEC, Hashes(), kind)
    for row in (0, 255, 256, 511, 512, 629):
        [chunk] = index.store.take([row])
        assert index.first_stage.search([chunk.text], 5)[0][0][0] == row


def test_dense_vectors_are_those_of_the_chunks_in_row_order(finished):
    index = open_index(finished, SPEC, Hashes(), "dense")
    vectors = Hashes().embed(index.store.texts(0, 630))
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
    spec = replace(SPEC, store_token_vectors_up_to_mb=0)
    build(tmp_path, spec)
    assert open_index(tmp_path, spec, Hashes(), "dense").token_vectors is None
    assert list(tmp_path.glob("token_*")) == []


def test_the_limit_is_on_the_bytes_of_all_token_vectors(tmp_path):
    # Costs: 6 chunks of 3 words and one of 2 a document, each with the word "99." = 27 a document, 2430 in all.
    # A component is 2 bytes: 2430 x 2 x 206 = 1,001,160 bytes with 206 dimensions, 996,300 with 205.
    from corag_ray.indexing.build_index import keeps_token_vectors

    start_index(tmp_path, DOCUMENTS, SPEC, Words())
    store = ChunkStore.open(tmp_path / "chunks.arrow")
    one_mb = replace(SPEC, store_token_vectors_up_to_mb=1)
    assert store.total_cost == 2430
    assert keeps_token_vectors(store, one_mb, 205)
    assert not keeps_token_vectors(store, one_mb, 206)


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
    start_index(tmp_path, DOCUMENTS, SPEC, Words())
    assert not is_finished(tmp_path)
    with pytest.raises(DataError, match="holds no finished index: build it with `corag index`"):
        open_index(tmp_path, SPEC, Hashes(), "dense")


def test_a_corpus_of_blank_documents_is_refused_and_can_be_tried_again(tmp_path):
    for _ in range(2):
        with pytest.raises(DataError, match="every document is blank"):
            start_index(tmp_path, [Document("a", " "), Document("b", "\n")], SPEC, Words())


def test_a_folder_that_cannot_be_written_is_a_data_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="cannot write the index to"):
        start_index(tmp_path / "file" / "index", DOCUMENTS, SPEC, Words())


def test_the_same_document_twice_is_refused_with_its_id(tmp_path):
    with pytest.raises(DataError, match="'d3' and 'd3' share the chunk id"):
        start_index(tmp_path, [*DOCUMENTS, DOCUMENTS[3]], SPEC, Words())


def test_all_shards_are_read_from_the_store_not_from_the_shard_files(tmp_path):
    start_index(tmp_path, DOCUMENTS[:1], SPEC, Words())
    [only] = all_shards(tmp_path)
    assert (only.start, only.stop) == (0, 7)
