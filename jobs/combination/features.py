"""Token matches of many questions on disk: computed once a set, then memory-mapped, as float16.

Training reads them in every pass. In memory they would be half a megabyte a question.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from corag_ray.indexing.open_index import OpenIndex
from corag_ray.models.combination_reranker import PreparedRows
from corag_ray.models.protocols import Embedder, FloatArray
from corag_ray.models.set_head import SetHead
from corag_ray.models.token_matches import TokenMatches, match_tokens
from jobs.combination.examples import Asked

NUMBERS = "matches.f16"
SHAPES = "shapes.npy"


def stored_matches(asked: Sequence[Asked], index: OpenIndex, embedder: Embedder, root: Path) -> list[TokenMatches]:
    """The questions' matches, in order; computed where a folder of `root` does not hold them yet.

    They are views of a file: as float32 (`TokenMatches.as_type`) they are read.
    """
    folder = root / f"matches-{identity_of(asked, index.version)}"
    if not folder.exists():
        write_matches(folder, (matches_of(one, index, embedder) for one in asked))
    return read_matches(folder)


def prepared_rows(head: SetHead, matches: TokenMatches, copied: int | None = None) -> PreparedRows:
    """What `CombinationReranker.prepare` makes of a question; of one candidate there may be a copy behind all."""
    with torch.inference_mode():
        rows = head.rows(matches.as_type(np.float32)).half()
        copies = rows[:0] if copied is None else rows[1 + copied : 2 + copied]
        return torch.cat([rows, copies]).numpy()


def identity_of(asked: Sequence[Asked], index_version: str) -> str:
    """What the matches depend on: the index (its texts, chunking and embedder), questions and candidates."""
    told = [index_version, [(one.text, one.rows) for one in asked]]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def matches_of(asked: Asked, index: OpenIndex, embedder: Embedder) -> TokenMatches:
    """A question's token matches, by stored vectors where the index has them."""
    _, [query] = embedder.embed_with_tokens([asked.text])
    chunks: list[FloatArray]
    if index.token_vectors is not None:
        chunks = index.token_vectors(asked.rows)
    else:
        _, chunks = embedder.embed_with_tokens([chunk.text for chunk in asked.chunks])
    return match_tokens(query, chunks)


def write_matches(folder: Path, matches: Iterable[TokenMatches]) -> None:
    """Write them one after the other; the folder is there when all are."""
    scratch = folder.with_name(folder.name + ".partial")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    shapes = []
    with (scratch / NUMBERS).open("wb") as target:
        for one in matches:
            shapes.append(one.nearest.shape)
            for array in (one.query, one.nearest, one.cosines):
                target.write(array.astype(np.float16).tobytes())
    np.save(scratch / SHAPES, np.array(shapes, dtype=np.int64).reshape(-1, 3))
    scratch.rename(folder)


def read_matches(folder: Path) -> list[TokenMatches]:
    """Those of a folder, in order, as views of its file."""
    shapes = np.load(folder / SHAPES)
    if len(shapes) == 0:
        return []
    numbers: NDArray[np.float16] = np.memmap(folder / NUMBERS, dtype=np.float16, mode="r")
    found, start = [], 0
    for chunks, tokens, dim in shapes.tolist():
        parts = []
        for shape in ((tokens, dim), (chunks, tokens, dim), (chunks, tokens)):
            end = start + int(np.prod(shape))
            parts.append(numbers[start:end].reshape(shape))
            start = end
        found.append(TokenMatches(*parts))  # half as wide as what is computed with
    return found
