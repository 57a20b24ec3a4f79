"""Builds the next version of an index in resumable steps: chunks, embedded shards, searchable files, manifest.

What the version before holds of the same corpus is taken over: chunks of unchanged documents are copied, and only
chunks that are new or read otherwise are embedded.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corag_ray.errors import DataError
from corag_ray.indexing.changes import NEW, DocumentHashes, chunk_changes, rows_before
from corag_ray.indexing.durable import put_in_place, to_disk
from corag_ray.indexing.merge import (
    CHUNKS,
    DOCUMENTS,
    LEXICAL,
    TOKENS,
    VECTOR,
    WINDOWED,
    write_dense,
    write_token_vectors,
    write_windowed,
)
from corag_ray.indexing.store import ChunkStore, write_chunks
from corag_ray.indexing.versions import (
    MANIFEST,
    UNFINISHED,
    IndexSpec,
    check_settings,
    current_version,
    find_version,
    holds_version,
    is_finished,
    next_version,
    publish,
    read_json,
    sync,
    write_json,
)
from corag_ray.models.lexical import LexicalIndex
from corag_ray.models.protocols import Embedder, PromptTokenizer
from corag_ray.types import Document

CHUNKS_A_SHARD = 256
STARTED, ROWS_BEFORE, SHARDS = "started.json", "rows_before.npy", "shards"
"""Under `UNFINISHED`: what is built and from which version; where each row comes from; embedded chunks."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Chunks `start:stop` among those that are embedded anew, written together into one parquet file."""

    number: int
    start: int
    stop: int

    def path(self, version: Path) -> Path:
        """The shard's file in a version's folder."""
        return version / UNFINISHED / SHARDS / f"shard-{self.number:06d}.parquet"


@dataclass(frozen=True, slots=True)
class Updated:
    """The version that is current now, its number of chunks, and what was done for it.

    `embedded` counts the chunks embedded in this call alone, not what an earlier, killed one left; `changed` is False
    where the version stood already.
    """

    version: str
    chunks: int
    embedded: int
    changed: bool


Embed = Callable[[Path, Sequence[Shard], int], None]
"""Embeds the given shards of a version's folder, of so many in all."""


def update_index(
    index: Path, documents: Iterable[Document], spec: IndexSpec, tokenizer: PromptTokenizer, embed: Embed
) -> Updated:
    """Make the version that `spec` names the current one, and build it before if it is not there.

    The caller holds the folder against other writers. Killed at any moment, the version before stays current, and the
    next call goes on.

    Raises:
        DataError: the folder holds an index made with other settings, or cannot be written, or no document has text.
    """
    if holds_version(index, spec):
        return _make_current(index, find_version(index, spec), embedded=0)
    try:
        version = start_version(index, documents, spec, tokenizer)
        missing = missing_shards(version)
        if missing:
            embed(version, missing, len(all_shards(version)))
        if not (version / MANIFEST).exists():  # there, if the process ended before the version was made current
            finish_version(version, spec)
        return _make_current(index, version, embedded=sum(shard.stop - shard.start for shard in missing))
    except OSError as error:
        raise DataError(f"cannot write the index to {index}: {error.strerror or error}.") from error


def unchanged(index: Path, spec: IndexSpec) -> Updated | None:
    """What `update_index` would answer where the current version is the one that `spec` names; None elsewhere."""
    if not holds_version(index, spec) or find_version(index, spec) != current_version(index):
        return None
    return _updated(current_version(index), embedded=0, changed=False)


def start_version(index: Path, documents: Iterable[Document], spec: IndexSpec, tokenizer: PromptTokenizer) -> Path:
    """The folder of the next version, chunked and ready to be embedded; a half-built one of this corpus is kept.

    Raises:
        DataError: the index was made with other settings, or no document has text.
    """
    base = current_version(index) if is_finished(index) else None
    if base is not None:
        check_settings(index, read_json(base / MANIFEST), spec)
    version = next_version(index)
    started = version / UNFINISHED / STARTED
    if started.exists():
        check_settings(index, found := read_json(started), spec)
        if found["corpus"] == spec.corpus and _is_there(_base(version)):
            return version
    shutil.rmtree(version, ignore_errors=True)
    (version / UNFINISHED / SHARDS).mkdir(parents=True)
    rows = _write_corpus(version, documents, spec, tokenizer, base)
    np.save(version / UNFINISHED / ROWS_BEFORE, rows)
    sync(version)
    to_disk(version / UNFINISHED / ROWS_BEFORE)
    write_json(started, asdict(spec) | {"base": base.name if base else None})
    return version


def all_shards(version: Path) -> list[Shard]:
    """Every shard of a version that is being built."""
    total = len(_rows_to_embed(version))
    starts = range(0, total, CHUNKS_A_SHARD)
    return [Shard(n, start, min(start + CHUNKS_A_SHARD, total)) for n, start in enumerate(starts)]


def missing_shards(version: Path) -> list[Shard]:
    """The shards that are not embedded yet."""
    return [shard for shard in all_shards(version) if not _is_readable(shard.path(version))]


def keeps_token_vectors(store: ChunkStore, spec: IndexSpec, dim: int) -> bool:
    """Whether token vectors are stored: judged by the chunks' costs, about one word piece a generator token."""
    return spec.token_vectors.fits(store.total_cost, dim)


def embed_shard(version: Path, store: ChunkStore, shard: Shard, spec: IndexSpec, embedder: Embedder) -> int:
    """Write a shard's vectors (and token vectors, where they are kept), atomically; returns its number of chunks."""
    texts = store.texts_of(_rows_to_embed(version)[shard.start : shard.stop].tolist())
    before = embedder.windowed
    vectors, tokens = embedder.embed_with_tokens(texts)
    windowed = np.zeros(len(texts), dtype=bool)  # told by chunk, since an update keeps some: the longest were windowed
    longest_first = np.argsort([-len(t) for t in tokens], kind="stable")
    windowed[longest_first[: embedder.windowed - before]] = True
    kept, encoded = keeps_token_vectors(store, spec, embedder.dim), spec.token_vectors.encoded
    columns: dict[str, pa.Array] = {
        VECTOR: pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), embedder.dim),
        TOKENS: pa.array([encoded(t).tobytes() if kept else None for t in tokens], pa.large_binary()),
        WINDOWED: pa.array(windowed),
    }
    target = shard.path(version)
    scratch = target.with_suffix(".partial")
    pq.write_table(pa.table(columns), scratch, compression="none", write_page_checksum=True)
    put_in_place(scratch, target)
    return len(texts)


def finish_version(version: Path, spec: IndexSpec) -> None:
    """From the shards and the version before make the searchable files, streamed by row; the manifest comes last."""
    store = ChunkStore.open(version / CHUNKS)
    rows = np.load(version / UNFINISHED / ROWS_BEFORE)
    base = _base(version)
    shards = [shard.path(version) for shard in all_shards(version)]
    dim = write_dense(version, shards, rows, base)
    stored = keeps_token_vectors(store, spec, dim)
    if stored:
        write_token_vectors(version, shards, rows, base, dim, spec.token_vectors.dtype)
    windowed = write_windowed(version, shards, rows, base)
    LexicalIndex.build(store.iter_texts(), store.ids).save(version / LEXICAL)
    content = hashlib.sha256(json.dumps(asdict(spec), sort_keys=True).encode()).hexdigest()[:8]
    facts: dict[str, object] = {"version": f"{int(version.name)}-{content}", "chunks": len(store), "dim": dim}
    facts |= {"documents": len(DocumentHashes.load(version / DOCUMENTS)), "token_vectors_stored": stored}
    sync(version)
    write_json(version / MANIFEST, asdict(spec) | facts | {"windowed_chunks": windowed})


def _write_corpus(
    version: Path, documents: Iterable[Document], spec: IndexSpec, tokenizer: PromptTokenizer, base: Path | None
) -> NDArray[np.int64]:
    """Write chunks and document hashes; returns for every chunk its row in the version before, or `NEW`."""
    hashes = DocumentHashes()

    def noted() -> Iterator[Document]:
        for document in documents:
            hashes.add(document)
            yield document

    before = None if base is None else (DocumentHashes.load(base / DOCUMENTS), ChunkStore.open(base / CHUNKS))
    chunks = chunk_changes(noted(), spec.chunking, tokenizer, before)
    if write_chunks(version / CHUNKS, chunks) == 0:
        raise DataError("the corpus holds no text to index: every document is blank.")
    hashes.save(version / DOCUMENTS)
    store = ChunkStore.open(version / CHUNKS)
    if base is None or before is None or _lacks_token_vectors(base, store, spec):
        return np.full(len(store), NEW, dtype=np.int64)
    return rows_before(store, before[1])


def _lacks_token_vectors(base: Path, store: ChunkStore, spec: IndexSpec) -> bool:
    """Whether this version keeps token vectors and the one before did not: it was larger, above the limit."""
    manifest = read_json(base / MANIFEST)
    return keeps_token_vectors(store, spec, int(str(manifest["dim"]))) and not manifest["token_vectors_stored"]


def _make_current(index: Path, version: Path, embedded: int) -> Updated:
    publish(index, version)
    return _updated(version, embedded, changed=True)


def _updated(version: Path, embedded: int, changed: bool) -> Updated:
    manifest = read_json(version / MANIFEST)
    return Updated(str(manifest["version"]), int(str(manifest["chunks"])), embedded, changed)


def _base(version: Path) -> Path | None:
    """The version that this one is built from."""
    name = read_json(version / UNFINISHED / STARTED)["base"]
    return None if name is None else version.parent / str(name)


def _is_there(base: Path | None) -> bool:
    return base is None or (base / MANIFEST).exists()


def _rows_to_embed(version: Path) -> NDArray[np.int64]:
    return np.flatnonzero(np.load(version / UNFINISHED / ROWS_BEFORE) == NEW)


def _is_readable(shard: Path) -> bool:
    """Whether a shard is there and whole; one that is not is embedded again."""
    try:
        pq.read_table(shard, page_checksum_verification=True)
    except (OSError, pa.ArrowInvalid):
        return False
    return True
