"""Chunks kept as token ids: made once, whole or not at all, taken over by updates, refused where they do not fit."""

import shutil
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from tiny_index import SPEC, build, contents
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from corag_ray.errors import DataError
from corag_ray.indexing import token_ids
from corag_ray.indexing.merge import CHUNKS
from corag_ray.indexing.store import ChunkStore
from corag_ray.indexing.token_ids import holds_token_ids, open_token_ids, write_token_ids
from corag_ray.indexing.versions import current_version
from corag_ray.models.chunk_tokenizer import ChunkTokenizer
from corag_ray.types import Document

WORDS = {"?": 0, "tea": 1, "salt": 2, "iron": 3, "sea": 4, "bridge": 5, "tower": 6, "clock": 7, "stone": 70_000}
BEFORE = [Document("a", "tea salt iron sea bridge"), Document("b", "tower clock")]
AFTER = [Document("d", "stone"), Document("a", "tea salt iron sea tower")]
"""b is gone, d is new, and of the two chunks of a the second reads otherwise. Chunks have three words."""


class Counting:
    """A tokenizer of words that notes what it reads."""

    def __init__(self, key="0123456789abcdef"):
        tokenizer = Tokenizer(WordLevel(WORDS, unk_token="?"))
        tokenizer.pre_tokenizer = WhitespaceSplit()
        self.key, self.read, self._real = key, [], ChunkTokenizer(key, tokenizer)

    def ids(self, texts):
        self.read += texts
        return self._real.ids(texts)


def built(index, documents=BEFORE):
    """The version of these documents, and its chunks."""
    build(index, documents, replace(SPEC, corpus=repr(documents)))
    version = current_version(index)
    return version, ChunkStore.open(version / CHUNKS)


def lists(of_rows, rows):
    return [ids.tolist() for ids in of_rows(rows)]


def test_ids_are_those_of_each_chunk_whatever_rows_are_asked_for(tmp_path):
    version, store = built(tmp_path)
    tokenizer = Counting()
    assert write_token_ids(version, store, tokenizer) == 3
    stored = open_token_ids(version, tokenizer.key, 3)
    assert lists(stored, [2, 0, 1, 0]) == [[6, 7], [1, 2, 3], [4, 5], [1, 2, 3]]
    assert stored([0])[0].dtype == np.int32
    assert lists(stored, []) == []
    folder = version / "token_ids-0123456789abcdef"
    assert [np.load(folder / name).tolist() for name in ("ids.npy", "offsets.npy")] == [
        [1, 2, 3, 4, 5, 6, 7],
        [0, 3, 5, 7],
    ]


def test_files_are_numpys_own_to_the_byte(tmp_path):
    version, store = built(tmp_path, [Document("a", "tea stone " * 2000)])  # the number of ids has four digits
    write_token_ids(version, store, Counting())
    path = version / "token_ids-0123456789abcdef" / "ids.npy"
    np.save(tmp_path / "expected.npy", np.array([1, 70_000] * 2000, dtype=np.int32))
    assert path.read_bytes() == (tmp_path / "expected.npy").read_bytes()


def test_chunks_without_a_token_have_no_ids(tmp_path):
    version, store = built(tmp_path)
    tokenizer = Counting()
    tokenizer.ids = lambda texts: [np.zeros(0, dtype=np.int32) for _ in texts]
    write_token_ids(version, store, tokenizer)
    assert lists(open_token_ids(version, tokenizer.key, 3), [0, 2]) == [[], []]


def test_what_is_there_is_not_made_again_and_another_key_has_its_own(tmp_path):
    version, store = built(tmp_path)
    assert not holds_token_ids(version, "0123456789abcdef")
    write_token_ids(version, store, Counting())
    assert holds_token_ids(version, "0123456789abcdef")
    again, other = Counting(), Counting("f" * 16)
    assert write_token_ids(version, store, again) == 0
    assert write_token_ids(version, store, other) == 3
    assert (len(again.read), len(other.read)) == (0, 3)


def test_progress_is_told_by_block_and_no_block_is_larger(tmp_path, monkeypatch):
    monkeypatch.setattr(token_ids, "CHUNKS_A_CALL", 2)
    version, store = built(tmp_path)
    tokenizer, told, sizes = Counting(), [], []
    real = tokenizer.ids
    tokenizer.ids = lambda texts: sizes.append(len(texts)) or real(texts)
    write_token_ids(version, store, tokenizer, lambda *done: told.append(done))
    assert told == [(2, 3), (3, 3)]
    assert sizes == [2, 1]
    assert lists(open_token_ids(version, tokenizer.key, 3), range(3)) == [[1, 2, 3], [4, 5], [6, 7]]


def test_memory_does_not_grow_with_the_ids(tmp_path, monkeypatch):
    monkeypatch.setattr(token_ids, "CHUNKS_A_CALL", 4)
    version, store = built(tmp_path, [Document("a", "tea salt iron " * 400)])
    tokenizer = Counting()
    tokenizer.ids = lambda texts: [np.zeros(50_000, dtype=np.int32) for _ in texts]  # 200 kB a chunk, 80 MB in all
    tracemalloc.start()
    write_token_ids(version, store, tokenizer)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000


def test_an_update_tokenises_only_what_is_new_and_equals_a_fresh_build(tmp_path):
    first, before = built(tmp_path / "updated")
    write_token_ids(first, before, Counting())
    version, store = built(tmp_path / "updated", AFTER)
    tokenizer = Counting()
    assert version != first
    assert write_token_ids(version, store, tokenizer) == 2
    assert tokenizer.read == ["stone", "sea tower"]
    assert lists(open_token_ids(version, tokenizer.key, 3), range(3)) == [[70_000], [1, 2, 3], [4, 6]]
    fresh, same = built(tmp_path / "fresh", AFTER)
    write_token_ids(fresh, same, Counting())
    folders = [of / "token_ids-0123456789abcdef" for of in (version, fresh)]
    assert contents(folders[0]) == contents(folders[1])


def test_ids_of_another_key_or_of_a_version_half_removed_are_not_taken_over(tmp_path):
    first, before = built(tmp_path)
    write_token_ids(first, before, Counting("f" * 16))
    write_token_ids(first, before, Counting("e" * 16))
    version, store = built(tmp_path, AFTER)
    assert write_token_ids(version, store, Counting()) == 3
    (first / "manifest.json").unlink()
    assert write_token_ids(version, store, Counting("f" * 16)) == 3


def test_folders_beside_the_versions_are_not_read(tmp_path):
    first, before = built(tmp_path)
    write_token_ids(first, before, Counting())
    shutil.copytree(first, first.with_name("000009 old"))
    shutil.rmtree(first / "token_ids-0123456789abcdef")
    tokenizer = Counting()
    assert write_token_ids(first, before, tokenizer) == 3
    assert len(tokenizer.read) == 3


@pytest.mark.parametrize(
    "name", ["token_ids-0123456789abcdef/ids.npy", "token_ids-0123456789abcdef/offsets.npy", CHUNKS]
)
def test_what_is_damaged_in_an_earlier_version_is_tokenised_anew_and_said(tmp_path, caplog, name):
    first, before = built(tmp_path)
    write_token_ids(first, before, Counting())
    version, store = built(tmp_path, AFTER)
    (first / name).write_bytes(b"no array")
    assert write_token_ids(version, store, Counting()) == 3
    assert lists(open_token_ids(version, "0123456789abcdef", 3), range(3)) == [[70_000], [1, 2, 3], [4, 6]]
    [message] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert message.startswith(f"token ids of an earlier version are not taken over: {first}")


def test_what_a_killed_call_left_of_another_key_is_removed(tmp_path):
    version, store = built(tmp_path)
    (version / "token_ids-ffff.partial").mkdir()
    (version / "token_ids-ffff.partial" / "ids.npy").write_bytes(b"half")
    write_token_ids(version, store, Counting())
    assert [path.name for path in version.glob("token_ids-*")] == ["token_ids-0123456789abcdef"]


def test_killed_while_writing_nothing_is_there_and_the_next_call_makes_it_whole(tmp_path, monkeypatch):
    version, store = built(tmp_path)
    monkeypatch.setattr(token_ids, "CHUNKS_A_CALL", 1)

    class Killed(BaseException):
        pass

    def kill(done, total):
        raise Killed

    with pytest.raises(Killed):
        write_token_ids(version, store, Counting(), kill)
    assert list(version.glob("token_ids-*.partial")) != []
    assert not holds_token_ids(version, "0123456789abcdef")
    write_token_ids(version, store, Counting())
    assert lists(open_token_ids(version, "0123456789abcdef", 3), [1]) == [[4, 5]]
    assert list(version.glob("token_ids-*.partial")) == []


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("offsets.npy", lambda offsets: offsets[:-1]),
        ("offsets.npy", lambda offsets: offsets + 1),
        ("offsets.npy", lambda offsets: offsets[[0, 2, 1, 3]]),
        ("offsets.npy", lambda offsets: offsets.astype(np.int32)),
        ("ids.npy", lambda ids: ids[:-1]),
        ("ids.npy", lambda ids: ids.astype(np.int64)),
        ("ids.npy", lambda ids: ids.reshape(-1, 1)),
    ],
)
def test_files_that_do_not_belong_together_are_refused_with_their_folder(tmp_path, name, damage):
    version, store = built(tmp_path)
    write_token_ids(version, store, Counting())
    path = version / "token_ids-0123456789abcdef" / name
    np.save(path, damage(np.load(path)))
    with pytest.raises(
        DataError, match=r"token_ids-0123456789abcdef is damaged, delete that folder: .* does not belong"
    ):
        open_token_ids(version, "0123456789abcdef", 3)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("ids.npy", lambda ids: np.where(ids == 70_000, 2**31 - 1, ids)),  # no model has a vector for it
        ("ids.npy", lambda ids: ids - 9),
        ("ids.npy", lambda ids: ids[::-1]),  # as many, and each a word: another index's, say
        ("offsets.npy", lambda offsets: offsets[[0, 0, 2, 3, 4]]),
    ],
)
def test_files_that_belong_together_and_are_not_as_they_were_written_are_refused(tmp_path, name, damage):
    version, store = built(tmp_path, [*BEFORE, Document("c", "stone")])
    write_token_ids(version, store, Counting())
    path = version / "token_ids-0123456789abcdef" / name
    content = np.load(path)
    np.save(path, damage(content).astype(content.dtype))
    with pytest.raises(DataError) as found:
        open_token_ids(version, "0123456789abcdef", len(store))
    assert str(found.value) == (
        f"{path.parent} is damaged, delete that folder: ids.npy or offsets.npy is not as it was written; "
        "the next run makes it anew."
    )


def test_a_file_that_is_cut_short_is_refused_likewise(tmp_path):
    version, store = built(tmp_path)
    write_token_ids(version, store, Counting())
    for name in ("ids.npy", "offsets.npy"):
        path = version / "token_ids-0123456789abcdef" / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-4])
        with pytest.raises(DataError, match=r"damaged, delete that folder: .*; the next run makes it anew\.$"):
            open_token_ids(version, "0123456789abcdef", 3)
        path.write_bytes(whole + b"more")
        with pytest.raises(DataError, match=r"damaged, delete that folder: .*; the next run makes it anew\.$"):
            open_token_ids(version, "0123456789abcdef", 3)
        path.write_bytes(whole)
    open_token_ids(version, "0123456789abcdef", 3)


def test_a_folder_that_bears_another_tokenizers_key_is_refused(tmp_path):
    version, store = built(tmp_path)
    write_token_ids(version, store, Counting())
    (version / "token_ids-0123456789abcdef").rename(version / f"token_ids-{'f' * 16}")
    with pytest.raises(DataError, match="is not as it was written"):
        open_token_ids(version, "f" * 16, 3)


def test_ids_of_before_there_were_checksums_count_as_none_and_are_made_again(tmp_path):
    version, store = built(tmp_path)
    write_token_ids(version, store, Counting())
    (version / "token_ids-0123456789abcdef" / "sha256").unlink()
    assert not holds_token_ids(version, "0123456789abcdef")
    assert write_token_ids(version, store, Counting()) == 3
    assert lists(open_token_ids(version, "0123456789abcdef", 3), [2]) == [[6, 7]]


@pytest.mark.parametrize("content", [None, b"", b"\x93NUMPY\x01\x00v\x00{'descr'", b"no array"])
@pytest.mark.parametrize("name", ["ids.npy", "offsets.npy"])
def test_a_file_that_is_missing_or_no_array_is_refused_likewise(tmp_path, name, content):
    version, store = built(tmp_path)
    write_token_ids(version, store, Counting())
    path = version / "token_ids-0123456789abcdef" / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match="is damaged, delete that folder"):
        open_token_ids(version, "0123456789abcdef", 3)


def test_ids_of_other_chunks_are_refused(tmp_path):
    version, store = built(tmp_path)
    write_token_ids(version, store, Counting())
    with pytest.raises(DataError, match=r"does not belong to chunks\.arrow"):
        open_token_ids(version, "0123456789abcdef", 4)


def test_a_folder_that_cannot_be_written_is_a_data_error(tmp_path):
    version, store = built(tmp_path)
    (version / "token_ids-0123456789abcdef.partial").write_text("in the way")
    with pytest.raises(DataError, match=r"cannot write token ids to .*: File exists") as found:
        write_token_ids(version, store, Counting())
    assert isinstance(found.value.__cause__, OSError)


def test_a_disk_that_fills_up_is_a_data_error_and_gets_its_room_back(tmp_path):
    version, store = built(tmp_path)

    def full(done, total):
        raise OSError(28, "No space left on device")

    with pytest.raises(DataError, match=r"cannot write token ids to .*: No space left on device"):
        write_token_ids(version, store, Counting(), full)
    assert list(version.glob("token_ids-*")) == []
