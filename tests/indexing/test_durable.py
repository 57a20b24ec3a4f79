"""What a loss of power may leave: no name without the content, and no step without what it rests on.

A file is told by its inode, which it keeps when it is renamed.
"""

import os
from pathlib import Path

import pytest
from tiny_index import SPEC, Hashes, Words, build

from corag_ray.errors import DataError
from corag_ray.indexing import build_index, merge
from corag_ray.indexing.build_index import ROWS_BEFORE, STARTED, all_shards, embed_shard, missing_shards, start_version
from corag_ray.indexing.durable import write_atomically
from corag_ray.indexing.merge import CHUNKS, DENSE, DOCUMENTS, LEXICAL
from corag_ray.indexing.store import ChunkStore
from corag_ray.indexing.versions import CURRENT, MANIFEST, UNFINISHED, is_finished
from corag_ray.types import Document

DOCUMENTS_OF_IT = [Document("d", "tea salt iron sea bridge")]


@pytest.fixture
def synced(monkeypatch):
    """The inodes that were waited for, in order."""
    inodes, real = [], os.fsync

    def fsync(handle):
        inodes.append(os.fstat(handle).st_ino)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return inodes


def inode(path):
    return path.stat().st_ino


def embedded(folder):
    version = start_version(folder, DOCUMENTS_OF_IT, SPEC, Words())
    [shard] = all_shards(version)
    embed_shard(version, ChunkStore.open(version / CHUNKS), shard, SPEC, Hashes())
    return version, shard


def test_a_file_is_on_the_disk_before_it_has_its_name_and_then_the_name_is(tmp_path, synced):
    write_atomically(tmp_path / "a.json", "old")
    synced.clear()
    write_atomically(tmp_path / "a.json", "new")
    assert synced == [inode(tmp_path / "a.json"), inode(tmp_path)]
    assert (tmp_path / "a.json").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


FULL = Path("/dev/full")
"""A file to which nothing can be written, as on a full disk."""
on_linux = pytest.mark.skipif(not FULL.exists(), reason="NOT RUN: this system has no /dev/full")


@on_linux
def test_what_a_full_disk_does_not_take_is_named_and_the_file_stays_as_it_was(tmp_path):
    path = tmp_path / "a.json"
    write_atomically(path, "old")
    (tmp_path / "a.partial").symlink_to(FULL)
    with pytest.raises(OSError, match="No space left on device") as error:
        write_atomically(path, "new")
    assert (error.value.filename, path.read_text()) == (str(path), "old")


@on_linux
@pytest.mark.parametrize("documents", [1, 2000])
def test_vectors_that_a_full_disk_does_not_take_are_one_sentence_and_no_finished_index(
    tmp_path, monkeypatch, documents
):
    monkeypatch.setattr(merge, "DENSE", FULL)
    many = [Document(f"d{n}", "tea salt") for n in range(documents)]
    with pytest.raises(DataError, match=r"cannot write the index to \S+: No space left on device") as error:
        build(tmp_path, many)
    assert "\n" not in str(error.value)
    assert not is_finished(tmp_path)


def test_an_embedded_shard_is_on_the_disk_with_its_name(tmp_path, synced):
    version, shard = embedded(tmp_path)
    assert synced[-2:] == [inode(shard.path(version)), inode(shard.path(version).parent)]


@pytest.mark.parametrize("place", range(8))
def test_a_shard_with_a_damaged_byte_is_embedded_again(tmp_path, place):
    version, shard = embedded(tmp_path)
    assert missing_shards(version) == []
    content = bytearray(shard.path(version).read_bytes())
    vectors = content.index(Hashes().embed(["tea salt iron"]).tobytes())
    content[vectors + 4 * place] ^= 1
    shard.path(version).write_bytes(content)
    assert missing_shards(version) == [shard]


@pytest.mark.parametrize(
    ("step", "needed"),
    [
        (STARTED, [CHUNKS, DOCUMENTS, f"{UNFINISHED}/{ROWS_BEFORE}"]),
        (MANIFEST, [CHUNKS, DOCUMENTS, DENSE, LEXICAL]),
    ],
)
def test_what_a_step_rests_on_is_on_the_disk_before_the_step_is_noted(tmp_path, synced, monkeypatch, step, needed):
    seen, real = [], build_index.write_json

    def noted(path, content):
        if path.name == step:
            version = tmp_path / "versions" / "000001"
            seen.extend(inode(version / name) in synced for name in needed)
        real(path, content)

    monkeypatch.setattr(build_index, "write_json", noted)
    build(tmp_path, DOCUMENTS_OF_IT)
    assert seen == [True] * len(needed)


def test_a_version_stands_in_its_folder_on_the_disk_before_it_is_made_current(tmp_path, synced):
    build(tmp_path, DOCUMENTS_OF_IT)
    last = {number: place for place, number in enumerate(synced)}
    version = tmp_path / "versions" / "000001"
    assert max(last[inode(version / MANIFEST)], last[inode(version.parent)]) < last[inode(tmp_path / CURRENT)]
