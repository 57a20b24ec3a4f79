"""Builds an index folder in resumable steps: chunks, embedded shards, then the searchable files and the manifest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corag_ray.errors import DataError
from corag_ray.indexing.chunking import Chunking, chunk_documents
from corag_ray.indexing.store import ChunkStore, write_chunks
from corag_ray.models.index import DenseIndex
from corag_ray.models.lexical import LexicalIndex
from corag_ray.models.protocols import Embedder, PromptTokenizer
from corag_ray.types import Document

SCHEMA_VERSION = 1
CHUNKS_A_SHARD = 256
TOKEN_VECTOR_BYTES = 2
"""Stored token vectors are float16."""

MANIFEST, STARTED, CHUNKS = "manifest.json", "started.json", "chunks.arrow"
DENSE, LEXICAL, SHARDS = "dense.faiss", "lexical", "shards"
WINDOWED = "windowed_chunks"
"""Chunks longer than the embedder's window: read in windows, counted here."""
TOKEN_VECTORS, TOKEN_OFFSETS = "token_vectors.npy", "token_offsets.npy"


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """What an index's numbers depend on; stored in its manifest and compared when it is opened."""

    corpus: str
    chunking: Chunking
    embedder: str
    dtype: str
    cost_tokenizer: str
    store_token_vectors_up_to_mb: int
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Shard:
    """Rows `start:stop` of the chunk store, embedded together into one parquet file."""

    number: int
    start: int
    stop: int

    def path(self, folder: Path) -> Path:
        """The shard's file in an index folder."""
        return folder / SHARDS / f"shard-{self.number:06d}.parquet"


def start_index(
    folder: Path, documents: Iterable[Document], spec: IndexSpec, tokenizer: PromptTokenizer
) -> list[Shard]:
    """Chunk the corpus and return the shards not yet embedded; what an earlier, equal run left is kept.

    Raises:
        DataError: the folder holds an index of another kind, or cannot be written, or no document has text.
    """
    started = folder / STARTED
    try:
        (folder / SHARDS).mkdir(parents=True, exist_ok=True)
        if started.exists():
            check_spec(folder, read_json(started), spec)
        else:
            count = write_chunks(folder / CHUNKS, chunk_documents(documents, spec.chunking, tokenizer))
            if count == 0:
                raise DataError("the corpus holds no text to index: every document is blank.")
            _write_json(started, asdict(spec))
    except OSError as error:
        raise DataError(f"cannot write the index to {folder}: {error.strerror or error}.") from error
    return [shard for shard in all_shards(folder) if not _is_readable(shard.path(folder))]


def all_shards(folder: Path) -> list[Shard]:
    """Every shard of the folder's chunk store."""
    total = len(ChunkStore.open(folder / CHUNKS))
    starts = range(0, total, CHUNKS_A_SHARD)
    return [Shard(n, start, min(start + CHUNKS_A_SHARD, total)) for n, start in enumerate(starts)]


def keeps_token_vectors(store: ChunkStore, spec: IndexSpec, dim: int) -> bool:
    """Whether token vectors are stored: judged by the chunks' costs, about one word piece a generator token."""
    return store.total_cost * dim * TOKEN_VECTOR_BYTES <= spec.store_token_vectors_up_to_mb * 1_000_000


def embed_shard(folder: Path, store: ChunkStore, shard: Shard, spec: IndexSpec, embedder: Embedder) -> int:
    """Write a shard's vectors (and token vectors, where they are kept), atomically; returns its number of chunks."""
    windowed_before = embedder.windowed
    texts = store.texts(shard.start, shard.stop)
    if keeps_token_vectors(store, spec, embedder.dim):
        vectors, tokens = embedder.embed_with_tokens(texts)
        blobs: list[bytes | None] = [t.astype(np.float16).tobytes() for t in tokens]
    else:
        vectors, blobs = embedder.embed(texts), [None] * len(texts)
    columns: dict[str, pa.Array] = {
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), embedder.dim),
        "token_vectors": pa.array(blobs, pa.large_binary()),
    }
    windowed = {WINDOWED: str(embedder.windowed - windowed_before)}
    target = shard.path(folder)
    scratch = target.with_suffix(".partial")
    pq.write_table(pa.table(columns).replace_schema_metadata(windowed), scratch, compression="none")
    scratch.replace(target)
    return len(vectors)


def finish_index(folder: Path, spec: IndexSpec) -> None:
    """From the shards make the dense index, the token vectors and BM25; the manifest comes last, then the shards go."""
    store = ChunkStore.open(folder / CHUNKS)
    dim = pq.read_schema(all_shards(folder)[0].path(folder)).field("vector").type.list_size
    stored = keeps_token_vectors(store, spec, dim)
    dense = DenseIndex.build(dim)
    for shard in all_shards(folder):
        dense.add(_column(folder, shard, "vector").flatten().to_numpy().reshape(-1, dim))
    faiss.write_index(dense, str(folder / DENSE))
    if stored:
        _write_token_vectors(folder, dim)
    LexicalIndex.build(store.texts(0, len(store)), store.ids).save(folder / LEXICAL)
    windowed = sum(int(pq.read_schema(shard.path(folder)).metadata[WINDOWED.encode()]) for shard in all_shards(folder))
    counts = {"chunks": len(store), "dim": dim, "token_vectors": stored, "windowed_chunks": windowed}
    _write_json(folder / MANIFEST, asdict(spec) | counts)
    shutil.rmtree(folder / SHARDS)


def check_spec(folder: Path, found: dict[str, object], wanted: IndexSpec) -> None:
    """Refuse an index made of other things than the ones asked for.

    Raises:
        DataError: names the first difference.
    """
    for key, value in asdict(wanted).items():
        if found.get(key) != value:
            raise DataError(
                f"the index in {folder} was made with {key} = {found.get(key)!r}, not {value!r}: delete that folder."
            )


def read_json(path: Path) -> dict[str, object]:
    """A manifest's content.

    Raises:
        DataError: it is damaged.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is damaged: delete the folder {path.parent}.") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} is damaged: delete the folder {path.parent}.")
    return content


def _is_readable(shard: Path) -> bool:
    """Whether a shard is there and whole; one that is not is embedded again."""
    try:
        pq.read_metadata(shard)
    except (OSError, pa.ArrowInvalid):
        return False
    return True


def _write_json(path: Path, content: dict[str, object]) -> None:
    scratch = path.with_suffix(".partial")
    scratch.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    scratch.replace(path)


def _column(folder: Path, shard: Shard, name: str) -> pa.Array:
    return pq.read_table(shard.path(folder), columns=[name], memory_map=True).column(name).combine_chunks()


def _write_token_vectors(folder: Path, dim: int) -> None:
    """One float16 array of all word pieces in row order, and the offsets of the rows in it."""
    width = dim * TOKEN_VECTOR_BYTES
    sizes = [pc.binary_length(_column(folder, shard, "token_vectors")).to_numpy() for shard in all_shards(folder)]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(sizes) // width)]).astype(np.int64)
    array = np.lib.format.open_memmap(
        folder / TOKEN_VECTORS, mode="w+", dtype=np.float16, shape=(int(offsets[-1]), dim)
    )
    done = 0
    for shard in all_shards(folder):
        blob = b"".join(_column(folder, shard, "token_vectors").to_pylist())
        block = np.frombuffer(blob, dtype=np.float16).reshape(-1, dim)
        array[done : done + len(block)] = block
        done += len(block)
    array.flush()
    np.save(folder / TOKEN_OFFSETS, offsets)
