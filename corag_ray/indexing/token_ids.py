"""A version's chunks as token ids of a model that reads them whole: tokenised once, at indexing, for all queries.

    versions/N/token_ids-KEY/ids.npy        the ids of all chunks in row order, int32, [tokens]
    versions/N/token_ids-KEY/offsets.npy    where each chunk begins in them, int64, [chunks + 1]
    versions/N/token_ids-KEY/sha256         of KEY and both files: ids are numbers, and wrong ones look like right ones

KEY is the tokenizer's (`ChunkTokenizer`): models that share one share the ids, and another one never reads them, nor
does the same one under another version of its library. Of a tokenizer that reads a text otherwise behind another one
there are the ids of that too, by `KEY-later`.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np

from corag_ray.errors import DataError
from corag_ray.indexing.changes import NEW, rows_before
from corag_ray.indexing.durable import put_in_place, to_disk
from corag_ray.indexing.merge import CHUNKS, Rows, in_row_order
from corag_ray.indexing.store import ChunkStore
from corag_ray.indexing.versions import MANIFEST
from corag_ray.models.chunk_tokenizer import ChunkTokenizer
from corag_ray.models.protocols import IdArray, TokenIds

_log = logging.getLogger(__name__)

IDS, OFFSETS, CHECKSUM = "ids.npy", "offsets.npy", "sha256"
CHUNKS_A_CALL = 512
"""So many are tokenised at once, at most: it bounds the memory, about 100 bytes a token while it lasts."""


def holds_token_ids(version: Path, key: str) -> bool:
    """Whether the version's chunks are there as ids of the tokenizer of this key; without a checksum, nobody knows."""
    return (_folder(version, key) / CHECKSUM).is_file()


def write_token_ids(
    version: Path, store: ChunkStore, tokenizer: ChunkTokenizer, advance: Callable[[int, int], None] | None = None
) -> int:
    """Write the ids of a version's chunks, all or nothing; returns how many chunks were tokenised.

    Ids of a chunk that another version holds with the same text are taken over from there; where this version has its
    ids already, nothing is done. `advance` is told (chunks done, in all). The caller holds the index folder.

    Raises:
        DataError: the ids cannot be written; an OSError is its cause.
    """
    if holds_token_ids(version, tokenizer.key):
        return 0
    target = _folder(version, tokenizer.key)
    scratch = target.with_name(f"{target.name}.partial")
    rows, earlier = _taken_over(version, store, tokenizer.key)
    try:
        for left in version.glob("token_ids-*.partial"):  # by a run that was killed, maybe with other models
            shutil.rmtree(left, ignore_errors=True)
        scratch.mkdir()
        arrays = _arrays(store, tokenizer, rows, earlier, advance or (lambda done, total: None))
        sizes = _write_flat(scratch / IDS, arrays)
        np.save(scratch / OFFSETS, np.cumsum([0, *sizes], dtype=np.int64))
        (scratch / CHECKSUM).write_text(_checksum(scratch, tokenizer.key), "ascii")
        for name in (IDS, OFFSETS, CHECKSUM):
            to_disk(scratch / name)
        if target.is_dir():  # by an earlier version of this package, without a checksum
            shutil.rmtree(target)
        put_in_place(scratch, target)
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)  # a full disk gets its room back
        raise DataError(f"cannot write token ids to {version}: {error.strerror or error}.") from error
    return int(np.count_nonzero(rows == NEW))


def open_token_ids(version: Path, key: str, chunks: int) -> TokenIds:
    """The ids that `write_token_ids` wrote for so many chunks, mapped into memory.

    They are read once from end to end, for their checksum: about a second for each GB.

    Raises:
        DataError: they are not there, not as they were written, or of another number of chunks.
    """
    folder = _folder(version, key)
    try:
        ids = np.load(folder / IDS, mmap_mode="r")
        offsets = np.load(folder / OFFSETS, mmap_mode="r")
        if (ids.dtype, ids.ndim) != (np.int32, 1) or (offsets.dtype, offsets.shape) != (np.int64, (chunks + 1,)):
            raise ValueError(f"{IDS} or {OFFSETS} does not belong to {CHUNKS}")
        if offsets[0] != 0 or offsets[-1] != len(ids) or np.any(offsets[1:] < offsets[:-1]):
            raise ValueError(f"{OFFSETS} does not belong to {IDS}")
        if (folder / CHECKSUM).read_text("ascii") != _checksum(folder, key):
            raise ValueError(f"{IDS} or {OFFSETS} is not as it was written")
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"{folder} is damaged, delete that folder: {str(error)[:200]}; the next run makes it anew."
        ) from error

    def of_rows(rows: Sequence[int]) -> list[IdArray]:
        return [np.array(ids[offsets[row] : offsets[row + 1]]) for row in rows]

    return of_rows


def _folder(version: Path, key: str) -> Path:
    return version / f"token_ids-{key}"


def _checksum(folder: Path, key: str) -> str:
    """64 hex digits, of both files by their content, and of the key that their folder should bear."""
    whole = hashlib.sha256(key.encode())
    for name in (IDS, OFFSETS):
        with (folder / name).open("rb") as content:
            hashlib.file_digest(content, lambda: whole)
    return whole.hexdigest()


def _taken_over(version: Path, store: ChunkStore, key: str) -> tuple[Rows, TokenIds | None]:
    """For every row its row in another version that has ids of this key, or `NEW`; and that version's ids.

    What is damaged there is tokenised anew, and folders that are no version (a copy, `000002 old`) are not read.
    """
    others = [path for path in version.parent.iterdir() if path.name.isdecimal() and path != version]
    for other in sorted(others, reverse=True):
        if not ((other / MANIFEST).exists() and holds_token_ids(other, key)):
            continue
        try:
            before = ChunkStore.open(other / CHUNKS)
            return rows_before(store, before), open_token_ids(other, key, len(before))
        except DataError as error:
            _log.warning("token ids of an earlier version are not taken over: %s", error)
    return np.full(len(store), NEW, dtype=np.int64), None


def _arrays(
    store: ChunkStore,
    tokenizer: ChunkTokenizer,
    rows: Rows,
    earlier: TokenIds | None,
    advance: Callable[[int, int], None],
) -> Iterator[IdArray]:
    """Every chunk's ids in row order, with one block of them in memory at a time."""

    def of_earlier(row: int) -> IdArray:
        assert earlier is not None  # all rows are new then
        return earlier([row])[0]

    texts = store.iter_texts()
    for start in range(0, len(store), CHUNKS_A_CALL):
        block = rows[start : start + CHUNKS_A_CALL]
        read = list(islice(texts, len(block)))
        fresh = tokenizer.ids([read[place] for place in np.flatnonzero(block == NEW)])
        yield from in_row_order(block, iter(fresh), of_earlier)
        advance(start + len(block), len(store))


def _write_flat(path: Path, arrays: Iterable[IdArray]) -> list[int]:
    """Write the arrays one after the other as one array; returns their sizes."""
    sizes = []
    with path.open("wb") as target:
        _write_header(target, 0)
        for array in arrays:
            target.write(array.tobytes())
            sizes.append(len(array))
        target.seek(0)
        _write_header(target, sum(sizes))
    return sizes


def _write_header(target: BinaryIO, items: int) -> None:
    """The header of so many numbers; numpy leaves room in it for any number, so it can be written over."""
    np.lib.format.write_array_header_1_0(target, {"descr": "<i4", "fortran_order": False, "shape": (items,)})
