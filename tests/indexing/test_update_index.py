"""Updates: equal to a fresh build, nothing embedded twice, the old version readable until the new one is there."""

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_index
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_index import SPEC, Hashes, build, contents

from corag_ray.errors import DataError
from corag_ray.indexing import build_index, versions
from corag_ray.indexing.build_index import unchanged
from corag_ray.indexing.merge import DENSE
from corag_ray.indexing.open_index import open_index
from corag_ray.indexing.token_vectors import TokenVectorFormat
from corag_ray.indexing.versions import MANIFEST, UNFINISHED, current_version, find_version, read_manifest
from corag_ray.types import Document

WORDS = ["tea", "salt", "iron", "sea", "bridge", "tower", "clock", "ferry", "stone", "river"]
texts = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
corpora = (
    st.dictionaries(st.sampled_from("abcde"), texts, min_size=1)
    .filter(lambda corpus: any(corpus.values()))
    .flatmap(lambda corpus: st.permutations([Document(name, text) for name, text in corpus.items()]))
)


def spec_of(documents):
    return replace(SPEC, corpus=repr(documents))


def files(index):
    """The current version's files, but for the manifest, which holds its number, and what a kill left behind."""
    found = contents(current_version(index))
    return {path: content for path, content in found.items() if path.parts[0] not in (MANIFEST, UNFINISHED)}


def answers(index, spec):
    """Chunk ids and scores of every candidate of every word."""
    found = {}
    for kind in ("dense", "lexical", "hybrid"):
        opened = open_index(index, spec, Hashes(), kind)
        rankings = opened.first_stage.search(WORDS, 60)
        found[kind] = [[(int(opened.store.ids[row]), score) for row, score in ranking] for ranking in rankings]
    return found


@settings(max_examples=50)
@given(st.lists(corpora, min_size=2, max_size=4))
def test_after_any_additions_changes_deletions_and_new_orders_all_is_as_in_a_fresh_build(history):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)  # waiting for the disk is not what is tested
        index = Path(folder) / "index"
        for number, documents in enumerate(history):
            spec = spec_of(documents)
            build(index, documents, spec)
            fresh = Path(folder) / f"fresh-{number}"
            build(fresh, documents, spec)
            assert files(index) == files(fresh)
            assert answers(index, spec) == answers(fresh, spec)
            updated, built = read_manifest(index), read_manifest(fresh)
            assert updated.pop("version").split("-")[1] == built.pop("version").split("-")[1]
            assert updated == built


BEFORE = [Document("a", "tea salt iron sea bridge"), Document("b", "tower clock"), Document("c", "ferry stone river")]
AFTER = [Document("c", "ferry stone river"), Document("d", "stone"), Document("a", "tea salt iron sea tower")]
"""b is gone, d is new, and of the two chunks of a the second reads otherwise."""


def test_only_chunks_that_are_new_or_read_otherwise_are_embedded(tmp_path):
    assert build(tmp_path, BEFORE, spec_of(BEFORE)).embedded == 4
    embedder = Hashes()
    updated = build(tmp_path, AFTER, spec_of(AFTER), embedder)
    assert embedder.embedded == ["stone", "sea tower"]
    assert (updated.embedded, updated.chunks, updated.changed) == (2, 4, True)


def test_a_chunk_of_the_same_place_with_another_text_of_the_same_length_is_embedded(tmp_path):
    build(tmp_path, [Document("a", "tea sea")], replace(SPEC, corpus="1"))
    embedder = Hashes()
    build(tmp_path, [Document("a", "sea tea")], replace(SPEC, corpus="2"), embedder)
    assert embedder.embedded == ["sea tea"]


def test_unchanged_documents_are_not_even_chunked_again(tmp_path, monkeypatch):
    build(tmp_path, BEFORE, spec_of(BEFORE))
    read = []
    real = tiny_index.Words.offsets
    monkeypatch.setattr(tiny_index.Words, "offsets", lambda self, texts: read.extend(texts) or real(self, texts))
    build(tmp_path, AFTER, spec_of(AFTER))
    assert read == ["stone", "tea salt iron sea tower"]


def test_a_deletion_embeds_nothing(tmp_path):
    build(tmp_path, BEFORE, spec_of(BEFORE))
    assert build(tmp_path, BEFORE[1:], spec_of(BEFORE[1:])).embedded == 0
    index = open_index(tmp_path, spec_of(BEFORE[1:]), Hashes(), "hybrid")
    assert {chunk.doc_id for chunk in index.store.take(range(len(index.store)))} == {"b", "c"}


def test_token_vectors_that_come_within_the_limit_by_a_deletion_are_computed(tmp_path):
    many = [Document(f"m{n}", "tea salt iron") for n in range(16_000)]
    one_mb = replace(SPEC, token_vectors=TokenVectorFormat(up_to_mb=1))
    build(tmp_path, many, replace(one_mb, corpus="many"))  # 16,000 x 4 words with "99." x 16 bytes = 1.024 MB
    assert read_manifest(tmp_path)["token_vectors_stored"] is False
    few = replace(one_mb, corpus="few")
    assert build(tmp_path, many[:3], few).embedded == 3
    assert len(open_index(tmp_path, few, Hashes(), "dense").token_vectors([2])[0]) == 3


def test_an_open_reader_keeps_its_version_through_any_number_of_updates(tmp_path):
    spec = spec_of(BEFORE)
    build(tmp_path, BEFORE, spec)
    reader = open_index(tmp_path, spec, Hashes(), "hybrid")
    version, chunks = reader.version, reader.store.take(range(4))
    found, tokens = reader.first_stage.search(WORDS, 60), reader.token_vectors([3])[0].tolist()
    for number in range(4):
        documents = [Document("x", f"{WORDS[number]} only")]
        build(tmp_path, documents, spec_of(documents))
    assert (reader.version, reader.store.take(range(4))) == (version, chunks)
    assert reader.first_stage.search(WORDS, 60) == found
    assert reader.token_vectors([3])[0].tolist() == tokens


def test_two_versions_are_kept_and_each_is_found_by_its_corpus(tmp_path):
    history = [[Document("a", word)] for word in WORDS[:4]]
    for documents in history:
        build(tmp_path, documents, spec_of(documents))
    assert [path.name for path in sorted((tmp_path / "versions").iterdir())] == ["000003", "000004"]
    assert find_version(tmp_path, spec_of(history[3])).name == current_version(tmp_path).name == "000004"
    assert find_version(tmp_path, spec_of(history[2])).name == "000003"
    with pytest.raises(DataError, match="another corpus"):
        find_version(tmp_path, spec_of(history[1]))


def test_going_back_to_the_version_before_builds_nothing(tmp_path):
    first = build(tmp_path, BEFORE, spec_of(BEFORE)).version
    build(tmp_path, AFTER, spec_of(AFTER))
    assert unchanged(tmp_path, spec_of(BEFORE)) is None
    embedder = Hashes()
    assert build(tmp_path, BEFORE, spec_of(BEFORE), embedder).version == first == read_manifest(tmp_path)["version"]
    assert embedder.embedded == []
    assert unchanged(tmp_path, spec_of(BEFORE)).version == first


def test_a_version_is_its_number_and_a_hash_of_what_it_was_made_from(tmp_path):
    made = [build(tmp_path, d, spec_of(d)).version for d in (BEFORE, AFTER)]
    again = build(tmp_path / "other", AFTER, spec_of(AFTER)).version
    assert [version.split("-")[0] for version in (*made, again)] == ["1", "2", "1"]
    assert made[0].split("-")[1] != made[1].split("-")[1] == again.split("-")[1]


def test_vectors_are_equal_to_the_bit_when_they_are_taken_over(tmp_path):
    build(tmp_path, BEFORE, spec_of(BEFORE))
    build(tmp_path, AFTER, spec_of(AFTER))
    vectors = open_index(tmp_path, spec_of(AFTER), Hashes(), "dense").dense.vectors(range(4))
    expected = Hashes().embed(["ferry stone river", "stone", "tea salt iron", "sea tower"])
    np.testing.assert_array_equal(vectors, expected)


class Killed(BaseException):
    """The process ends here."""


STEPS = {
    "chunks written": (build_index, "write_chunks", ""),
    "started": (build_index, "write_json", "started.json"),
    "shard": (tiny_index, "embed_shard", ""),
    "dense": (build_index, "write_dense", ""),
    "token vectors": (build_index, "write_token_vectors", ""),
    "windowed": (build_index, "write_windowed", ""),
    "manifest": (build_index, "write_json", "manifest.json"),
    "current": (versions, "write_atomically", "CURRENT"),
    "cleared": (shutil, "rmtree", "unfinished"),
    "old ones removed": (shutil, "rmtree", "000001"),
}
"""By step: where its function stands, its name, and the name of the file or folder that it is called with."""


def kill(patch, step, when):
    """The step's next call raises `Killed` in place of its work, or after it."""
    module, name, path = STEPS[step]
    real = getattr(module, name)

    def killed(*arguments, **options):
        if path and arguments[0].name != path:
            return real(*arguments, **options)
        if when == "after":
            real(*arguments, **options)
        raise Killed

    patch.setattr(module, name, killed)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_step_the_old_version_stays_and_the_next_call_goes_on(tmp_path, monkeypatch, step, when):
    monkeypatch.setattr(build_index, "CHUNKS_A_SHARD", 1)
    old, new = spec_of(BEFORE), spec_of(AFTER)
    for documents in ([Document("z", "tea")], BEFORE):
        build(tmp_path, documents, spec_of(documents))
    expected = answers(tmp_path, old)
    embedder = Hashes()
    with monkeypatch.context() as patch:
        kill(patch, step, when)
        with pytest.raises(Killed):
            build(tmp_path, AFTER, new, embedder)
    switched = (step, when) == ("current", "after") or step in ("cleared", "old ones removed")
    assert read_manifest(tmp_path)["corpus"] == (new if switched else old).corpus
    assert answers(tmp_path, old) == expected
    build(tmp_path, AFTER, new, embedder)
    assert sorted(embedder.embedded) == ["sea tower", "stone"]  # each once, before the kill or after it
    build(tmp_path / "fresh", AFTER, new)
    assert files(tmp_path) == files(tmp_path / "fresh")
    assert answers(tmp_path, new) == answers(tmp_path / "fresh", new)


@pytest.mark.parametrize("step", list(STEPS)[:8])
def test_a_first_build_killed_at_any_step_goes_on_without_embedding_again(tmp_path, monkeypatch, step):
    monkeypatch.setattr(build_index, "CHUNKS_A_SHARD", 1)
    embedder = Hashes()
    for when in ("before", "after"):
        with monkeypatch.context() as patch:
            kill(patch, step, when)
            with pytest.raises(Killed):
                build(tmp_path, BEFORE, spec_of(BEFORE), embedder)
        if when == "before":
            with pytest.raises(DataError, match="holds no finished index"):
                open_index(tmp_path, spec_of(BEFORE), Hashes(), "dense")
    build(tmp_path, BEFORE, spec_of(BEFORE), embedder)
    assert sorted(embedder.embedded) == ["ferry stone river", "sea bridge", "tea salt iron", "tower clock"]


def test_a_folder_beside_the_versions_that_is_none_is_left_alone(tmp_path):
    build(tmp_path, BEFORE, spec_of(BEFORE))
    shutil.copytree(current_version(tmp_path), current_version(tmp_path).with_name("000001 old"))
    assert build(tmp_path, AFTER, spec_of(AFTER)).version.startswith("2-")


def test_an_update_of_a_damaged_dense_index_is_refused_with_what_to_do(tmp_path):
    build(tmp_path, BEFORE, spec_of(BEFORE))
    (current_version(tmp_path) / DENSE).write_bytes(b"damaged")
    with pytest.raises(DataError, match=r"dense\.faiss is damaged: delete the folder"):
        build(tmp_path, AFTER, spec_of(AFTER))
