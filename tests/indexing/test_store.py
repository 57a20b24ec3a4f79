"""The chunk store: what was written comes back, from a mapped file."""

import pyarrow as pa
import pytest

from corag_ray.errors import DataError
from corag_ray.indexing.store import ChunkStore, write_chunks
from corag_ray.types import Chunk


def chunk(number, text="text", doc_id=None):
    return Chunk(
        number, doc_id or f"d{number}", number % 7, number % 11, number % 11 + len(text), text, 100 + number % 5
    )


@pytest.fixture
def many(tmp_path):
    """More chunks than one batch of the file, ids over the whole unsigned range, texts of every script."""
    chunks = [chunk((1 << 64) - 1 - n * 7919, f"{n} 茶👩‍🚀é") for n in range(5000)]
    assert write_chunks(tmp_path / "chunks.arrow", chunks) == 5000
    return chunks, ChunkStore.open(tmp_path / "chunks.arrow")


def test_every_field_of_every_chunk_comes_back(many):
    chunks, store = many
    assert len(store) == 5000
    assert store.take(range(5000)) == chunks


def test_ids_are_the_chunks_ids_by_row_and_costs_add_up(many):
    chunks, store = many
    assert store.ids.tolist() == [c.chunk_id for c in chunks]
    assert store.total_cost == sum(c.cost for c in chunks)


def test_take_keeps_the_order_and_the_repetitions_asked_for(many):
    chunks, store = many
    rows = [4999, 0, 4096, 0, 17]
    assert store.take(rows) == [chunks[row] for row in rows]
    assert store.take([]) == []


def test_opening_maps_the_file_instead_of_reading_it(tmp_path):
    write_chunks(tmp_path / "chunks.arrow", [chunk(n, "x" * 10_000) for n in range(500)])
    before = pa.total_allocated_bytes()
    store = ChunkStore.open(tmp_path / "chunks.arrow")
    assert pa.total_allocated_bytes() - before < 100_000  # of five million
    assert len(list(store.iter_texts())) == 500


@pytest.mark.parametrize("doc_id", ["d5", "other"])
def test_two_chunks_of_one_id_are_refused_and_leave_no_store(tmp_path, doc_id):
    chunks = [chunk(5), chunk(6), chunk(5, doc_id=doc_id)]
    with pytest.raises(DataError, match=rf"'d5' and '{doc_id}' share the chunk id 0000000000000005"):
        write_chunks(tmp_path / "chunks.arrow", chunks)
    assert not (tmp_path / "chunks.arrow").exists()


def test_duplicates_are_found_across_batches(tmp_path):
    with pytest.raises(DataError, match="share the chunk id"):
        write_chunks(tmp_path / "chunks.arrow", [*(chunk(n) for n in range(4100)), chunk(1)])


def test_the_rows_of_documents_stand_in_store_order_and_an_unknown_document_has_none(tmp_path):
    names = [f"d{n % 3}" for n in range(4100)]  # over two batches of the file
    write_chunks(tmp_path / "chunks.arrow", [chunk(n, doc_id=name) for n, name in enumerate(names)])
    store = ChunkStore.open(tmp_path / "chunks.arrow")
    expected = {name: [n for n, other in enumerate(names) if other == name] for name in ("d0", "d2")}
    assert store.rows_by_document({"d0", "d2", "gone"}) == expected
    assert store.rows_by_document(set()) == {}


def test_texts_of_rows_keep_their_order_and_all_texts_come_in_row_order(many):
    chunks, store = many
    assert store.texts_of([4999, 0, 4096, 4095]) == [chunks[row].text for row in (4999, 0, 4096, 4095)]
    assert store.texts_of([]) == []
    assert list(store.iter_texts()) == [c.text for c in chunks]


def test_a_documents_rows_are_those_from_its_position_zero_to_the_next(tmp_path):
    sizes = {"a": 1, "b": 5000, "c": 2}  # b lies over two batches of the file
    names = [(name, position) for name, size in sizes.items() for position in range(size)]
    write_chunks(
        tmp_path / "chunks.arrow",
        [Chunk(n, name, position, 0, 1, "x", 1) for n, (name, position) in enumerate(names)],
    )
    found = ChunkStore.open(tmp_path / "chunks.arrow").rows_of_documents()
    assert found == {"a": range(1), "b": range(1, 5001), "c": range(5001, 5003)}


def spoil(path, how):
    write_chunks(path, [chunk(n) for n in range(100)])
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "folder":
        path.unlink()
        path.mkdir()
    elif how == "other columns":
        table = pa.table({"a": [1]})
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write(table)
    else:
        path.write_bytes({"empty": b"", "text": b"not arrow at all\n" * 99, "half": content[: len(content) // 2]}[how])


@pytest.mark.parametrize("how", ["missing", "folder", "empty", "text", "half", "other columns"])
def test_what_is_no_store_is_refused_in_one_sentence_with_its_path(tmp_path, how):
    path = tmp_path / "chunks.arrow"
    spoil(path, how)
    with pytest.raises(DataError, match="is no chunk store that this machine can read: delete the folder") as error:
        ChunkStore.open(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)
