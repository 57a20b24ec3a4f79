"""What two versions of a corpus share: chunks of unchanged documents, and the rows whose vectors can be taken over."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corag_ray.errors import DataError
from corag_ray.indexing.chunking import Chunking, chunk_documents
from corag_ray.indexing.store import ChunkStore
from corag_ray.models.protocols import PromptTokenizer
from corag_ray.types import Chunk, Document

NEW = -1
"""In the place of a row of the version before: the chunk is not in it."""
ROWS_A_BLOCK = 4096


class DocumentHashes:
    """Hashes of the documents' texts by id, collected while the documents go by."""

    def __init__(self) -> None:
        self._hashes: dict[str, bytes] = {}

    def __len__(self) -> int:
        """Number of documents."""
        return len(self._hashes)

    @classmethod
    def load(cls, path: Path) -> DocumentHashes:
        """Those that `save` wrote.

        Raises:
            DataError: the file is damaged.
        """
        found = cls()
        try:
            table = pq.read_table(path)
            names, hashes = table.column("doc_id").to_pylist(), table.column("hash").to_pylist()
        except (OSError, KeyError, pa.ArrowInvalid) as error:
            raise DataError(f"{path} is damaged: delete the folder {path.parent}.") from error
        found._hashes = dict(zip(names, hashes, strict=True))
        return found

    def save(self, path: Path) -> None:
        """Write them as parquet, in order."""
        columns = {"doc_id": pa.array(list(self._hashes), pa.string()), "hash": pa.array(list(self._hashes.values()))}
        pq.write_table(pa.table(columns), path)

    def add(self, document: Document) -> None:
        """Note one more document.

        Raises:
            DataError: its id was there before.
        """
        if document.doc_id in self._hashes:
            raise DataError(f"two documents have the id '{document.doc_id}': every document must have one of its own.")
        self._hashes[document.doc_id] = _hash(document)

    def hold(self, document: Document) -> bool:
        """Whether the document was there with the same text."""
        return self._hashes.get(document.doc_id) == _hash(document)


def chunk_changes(
    documents: Iterable[Document],
    chunking: Chunking,
    tokenizer: PromptTokenizer,
    before: tuple[DocumentHashes, ChunkStore] | None,
) -> Iterator[Chunk]:
    """The chunks of all documents in order; those of a document that `before` holds unchanged are copied from there."""
    if before is None:
        yield from chunk_documents(documents, chunking, tokenizer)
        return
    hashes, store = before
    rows = store.rows_of_documents()
    for unchanged, group in groupby(documents, hashes.hold):
        if unchanged:
            for document in group:
                yield from store.take(rows.get(document.doc_id, range(0)))
        else:
            yield from chunk_documents(group, chunking, tokenizer)


def rows_before(store: ChunkStore, before: ChunkStore) -> NDArray[np.int64]:
    """For every row of `store` the row in `before` of the chunk with the same id and text, else `NEW`; [chunks]."""
    order = np.argsort(before.ids)
    places = np.minimum(np.searchsorted(before.ids, store.ids, sorter=order), len(order) - 1)
    found = order[places].astype(np.int64)
    found[before.ids[found] != store.ids] = NEW
    for start in range(0, len(store), ROWS_A_BLOCK):
        block = found[start : start + ROWS_A_BLOCK]
        shared = np.flatnonzero(block != NEW)
        texts = store.texts_of((start + shared).tolist())
        earlier = before.texts_of(block[shared].tolist())
        differ = np.array([a != b for a, b in zip(texts, earlier, strict=True)], dtype=bool)
        block[shared[differ]] = NEW
    return found


def _hash(document: Document) -> bytes:
    return hashlib.blake2b(document.text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
