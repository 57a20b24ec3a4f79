"""Writes a version's searchable files in row order, each row from a new shard or from the version before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import faiss
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corag_ray.errors import DataError
from corag_ray.indexing.changes import NEW, ROWS_A_BLOCK
from corag_ray.models.index import DenseIndex

CHUNKS, DOCUMENTS, DENSE, LEXICAL = "chunks.arrow", "documents.parquet", "dense.faiss", "lexical"
TOKEN_VECTORS, TOKEN_OFFSETS = "token_vectors.npy", "token_offsets.npy"
WINDOWED_ROWS = "windowed.npy"
"""For every row, whether its chunk is longer than the embedder's window."""
VECTOR, TOKENS, WINDOWED = "vector", "token_vectors", "windowed"
"""Columns of a shard."""

Rows = NDArray[np.int64]
"""For every row of the new version its row in the version before, or `NEW`."""
_Item = TypeVar("_Item")


def write_dense(version: Path, shards: Sequence[Path], rows: Rows, base: Path | None) -> int:
    """Write the dense index; returns the width of the vectors."""
    before: Any = None if base is None else _dense_before(base)
    dim = int(before.d if before is not None else pq.read_schema(shards[0]).field(VECTOR).type.list_size)
    dense = DenseIndex.build(dim)
    fresh = (vector for path in shards for vector in _column(path, VECTOR).flatten().to_numpy().reshape(-1, dim))
    vectors = in_row_order(rows, fresh, lambda row: before.reconstruct(row))
    while block := list(islice(vectors, ROWS_A_BLOCK)):
        dense.add(np.stack(block))
    with (version / DENSE).open("wb") as target:  # FAISS closes a file of its own without a word when the disk is full
        writer = faiss.PyCallbackIOWriter(target.write)  # type: ignore[attr-defined]  # its stubs leave it out
        faiss.write_index(dense, writer)
    return dim


def _dense_before(base: Path) -> Any:
    try:
        return faiss.read_index(str(base / DENSE))
    except RuntimeError as error:
        index = base.parent.parent
        raise DataError(f"{base / DENSE} is damaged: delete the folder {index}, and it is built anew.") from error


def write_token_vectors(
    version: Path, shards: Sequence[Path], rows: Rows, base: Path | None, dim: int, dtype: str
) -> None:
    """One array of all word pieces in row order, as the shards hold them, and the offsets of the rows in it."""
    stored = np.dtype(dtype)
    before: Any = np.load(base / TOKEN_VECTORS, mmap_mode="r") if base and np.any(rows != NEW) else None
    starts = np.load(base / TOKEN_OFFSETS) if base and before is not None else np.zeros(1, dtype=np.int64)
    width = dim * stored.itemsize
    fresh_sizes = chain.from_iterable((pc.binary_length(_column(p, TOKENS)).to_numpy() // width) for p in shards)
    sizes = in_row_order(rows, fresh_sizes, lambda row: starts[row + 1] - starts[row])
    offsets = np.concatenate([[0], np.cumsum(np.fromiter(sizes, dtype=np.int64, count=len(rows)))]).astype(np.int64)

    fresh = (np.frombuffer(blob.as_buffer(), stored).reshape(-1, dim) for p in shards for blob in _column(p, TOKENS))
    pieces = in_row_order(rows, fresh, lambda row: before[starts[row] : starts[row + 1]])
    with (version / TOKEN_VECTORS).open("wb") as target:  # streamed: a mapped array would count as memory
        header = {"descr": stored.str, "fortran_order": False, "shape": (int(offsets[-1]), dim)}
        np.lib.format.write_array_header_1_0(target, header)
        for vectors in pieces:
            target.write(vectors.tobytes())
    np.save(version / TOKEN_OFFSETS, offsets)


def write_windowed(version: Path, shards: Sequence[Path], rows: Rows, base: Path | None) -> int:
    """Write which chunks are longer than the embedder's window; returns how many are."""
    before = np.zeros(0, dtype=bool) if base is None else np.load(base / WINDOWED_ROWS)
    fresh = chain.from_iterable(_column(path, WINDOWED).to_numpy(zero_copy_only=False) for path in shards)
    flags = np.fromiter(in_row_order(rows, fresh, lambda row: bool(before[row])), dtype=bool, count=len(rows))
    np.save(version / WINDOWED_ROWS, flags)
    return int(flags.sum())


def in_row_order(rows: Rows, fresh: Iterator[_Item], earlier: Callable[[int], _Item]) -> Iterator[_Item]:
    """What belongs to each row: the next of `fresh` where the row is new, else that of its earlier row."""
    for row in rows.tolist():
        yield next(fresh) if row == NEW else earlier(row)


def _column(shard: Path, name: str) -> Any:
    return pq.read_table(shard, columns=[name], memory_map=True).column(name).combine_chunks()
