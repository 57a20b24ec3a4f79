"""The chunk store: one memory-mapped Arrow file that every process of a machine shares."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

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
        self._batches = table.to_batches()
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])
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
        columns = self._columns(rows, SCHEMA.names)
        return [Chunk(*values) for values in zip(*columns, strict=True)]

    def texts_of(self, rows: Sequence[int]) -> list[str]:
        """The texts of the given rows, in that order."""
        [texts] = self._columns(rows, ["text"])
        return texts

    def rows_by_document(self, doc_ids: Collection[str]) -> dict[str, list[int]]:
        """The rows of the given documents, in store order."""
        wanted = pc.is_in(self._table.column("doc_id"), pa.array(list(doc_ids), pa.string()))
        rows: dict[str, list[int]] = {}
        for row in np.flatnonzero(wanted.to_numpy()).tolist():
            rows.setdefault(self._table.column("doc_id")[row].as_py(), []).append(row)
        return rows

    def iter_texts(self) -> Iterator[str]:
        """All texts in row order, with one batch of them in memory at a time."""
        for batch in self._batches:
            yield from batch.column("text").to_pylist()

    def rows_of_documents(self) -> dict[str, range]:
        """The rows of every document that has chunks, in store order."""
        firsts = np.flatnonzero(self._table.column("position").to_numpy() == 0).tolist()
        names = pc.take(self._table.column("doc_id"), pa.array(firsts, pa.int64())).to_pylist()
        stops = [*firsts[1:], len(self)]
        return {name: range(first, stop) for name, first, stop in zip(names, firsts, stops, strict=True)}

    def _columns(self, rows: Sequence[int], names: Sequence[str]) -> list[list[Any]]:
        """Values of the given rows, a list a column. Arrow's own `take` joins all batches of a column first."""
        wanted = np.asarray(rows, dtype=np.int64)
        owners = np.searchsorted(self._starts, wanted, side="right") - 1
        values: list[list[Any]] = [[None] * len(wanted) for _ in names]
        for owner in np.unique(owners).tolist():
            places = np.flatnonzero(owners == owner)
            found = self._batches[owner].select(list(names)).take(pa.array(wanted[places] - self._starts[owner]))
            for column, target in zip(found.columns, values, strict=True):
                for place, value in zip(places.tolist(), column.to_pylist(), strict=True):
                    target[place] = value
        return values


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
