"""The chunk store: one memory-mapped Arrow file that every process of a machine shares."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from corag_ray.errors import DataError
from corag_ray.types import Chunk

SCHEMA = pa.schema(
    [
        ("chunk_id", pa.uint64()),
        ("doc_id", pa.string()),
        ("position", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("text", pa.large_string()),
        ("cost", pa.int32()),
    ]
)
CHUNKS_A_BATCH = 4096


class ChunkStore:
    """Chunks by row, read from the mapped file when asked for."""

    def __init__(self, table: pa.Table) -> None:
        """Wrap a table of `SCHEMA`; use `open` for a file."""
        self._table = table
        self.ids: NDArray[np.uint64] = self._table.column("chunk_id").to_numpy()

    @classmethod
    def open(cls, path: Path) -> ChunkStore:
        """Map a file written by `write_chunks`."""
        try:
            with pa.memory_map(str(path)) as source:
                return cls(pa.ipc.open_file(source).read_all())
        except (OSError, pa.ArrowInvalid, KeyError) as error:
            raise DataError(
                f"{path} is no chunk store that this machine can read: delete the folder {path.parent} ({error})."
            ) from error

    def __len__(self) -> int:
        """Number of chunks."""
        return self._table.num_rows

    @property
    def total_cost(self) -> int:
        """Sum of all chunks' costs, in generator tokens."""
        return int(self._table.column("cost").to_numpy().sum())

    def take(self, rows: Sequence[int]) -> list[Chunk]:
        """The chunks of the given rows, in that order."""
        columns = self._table.take(pa.array(rows, pa.int64())).to_pydict()
        return [Chunk(*values) for values in zip(*(columns[name] for name in SCHEMA.names), strict=True)]

    def rows_by_document(self, doc_ids: Collection[str]) -> dict[str, list[int]]:
        """The rows of the given documents, in store order."""
        wanted = pc.is_in(self._table.column("doc_id"), pa.array(list(doc_ids), pa.string()))
        rows: dict[str, list[int]] = {}
        for row in np.flatnonzero(wanted.to_numpy()).tolist():
            rows.setdefault(self._table.column("doc_id")[row].as_py(), []).append(row)
        return rows

    def texts(self, start: int, stop: int) -> list[str]:
        """Texts of the rows `start:stop`."""
        texts: list[str] = self._table.column("text").slice(start, stop - start).to_pylist()
        return texts


def write_chunks(path: Path, chunks: Iterable[Chunk]) -> int:
    """Write chunks batch by batch under a temporary name, then rename; returns their number.

    Raises:
        DataError: two chunks have the same id (the same document twice).
    """
    scratch = path.with_suffix(".partial")
    seen: dict[int, str] = {}
    remaining = iter(chunks)
    with pa.ipc.new_file(str(scratch), SCHEMA) as writer:
        while batch := list(islice(remaining, CHUNKS_A_BATCH)):
            for chunk in batch:
                if chunk.chunk_id in seen:
                    raise DataError(
                        f"documents '{seen[chunk.chunk_id]}' and '{chunk.doc_id}' share the chunk id "
                        f"{chunk.chunk_id:016x}: every document must have an id of its own."
                    )
                seen[chunk.chunk_id] = chunk.doc_id
            columns = {name: [getattr(chunk, name) for chunk in batch] for name in SCHEMA.names}
            writer.write_batch(pa.RecordBatch.from_pydict(columns, schema=SCHEMA))
    scratch.replace(path)
    return len(seen)
