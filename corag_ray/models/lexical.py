"""BM25 over words, and over character bigrams where a script writes no blanks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

import bm25s
import numpy as np
from numpy.typing import NDArray

from corag_ray.models.ranking import top_rows

# Scripts without blanks between words: Thai, Lao, Khmer, kana, Chinese characters (with extensions).
_UNSPACED = "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# Vowel signs and accents that stand as characters of their own: Python does not count them as letters.
_MARKS = (
    "\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0966-\u0dff"
)
_RUN = re.compile(rf"[{_UNSPACED}]+|(?:[^\W{_UNSPACED}]|[{_MARKS}])+")
_UNSPACED_RUN = re.compile(rf"[{_UNSPACED}]")


def terms(text: str) -> list[str]:
    """Search terms of a text: lower-case words; overlapping character bigrams of a run in a script without blanks.

    >>> terms("Tea 茶葉史 in 1660")
    ['tea', '茶葉', '葉史', 'in', '1660']
    """
    found: list[str] = []
    for run in _RUN.findall(unicodedata.normalize("NFKC", text).lower()):
        if _UNSPACED_RUN.match(run) and len(run) > 1:
            found += [run[i : i + 2] for i in range(len(run) - 1)]
        else:
            found.append(run)
    return found


EMPTY = "empty"
"""Name of the one file of a saved index without terms."""


class LexicalIndex:
    """BM25 (Lucene's variant, k1 1.5, b 0.75) by bm25s; chunks without a query term are not found."""

    def __init__(self, bm25: bm25s.BM25 | None, ids: NDArray[np.uint64]) -> None:
        """`bm25` is None when no chunk has a term; `ids` [n] are the chunk ids by store row."""
        self._bm25 = bm25
        self._ids = ids

    @classmethod
    def build(cls, texts: Iterable[str], ids: NDArray[np.uint64]) -> LexicalIndex:
        """Index the texts in store order; of a text only the numbers of its terms stay in memory."""
        numbers: dict[str, int] = {}
        rows = [[numbers.setdefault(term, len(numbers)) for term in terms(text)] for text in texts]
        if not numbers:
            return cls(None, ids)
        bm25 = bm25s.BM25(method="lucene")
        bm25.index((rows, numbers), show_progress=False)
        return cls(bm25, ids)

    def save(self, folder: Path) -> None:
        """Write arrays and JSON files (nothing pickled)."""
        folder.mkdir(parents=True, exist_ok=True)
        if self._bm25 is None:
            (folder / EMPTY).touch()
        else:
            self._bm25.save(folder, allow_pickle=False, show_progress=False)

    @classmethod
    def load(cls, folder: Path, ids: NDArray[np.uint64]) -> LexicalIndex:
        """Open a saved index, memory-mapped."""
        if (folder / EMPTY).exists():
            return cls(None, ids)
        return cls(bm25s.BM25.load(folder, mmap=True, allow_pickle=False, show_progress=False), ids)

    @property
    def num_chunks(self) -> int:
        """Chunks of the corpus."""
        return len(self._ids)

    def chunks_with(self, term: str) -> int:
        """In how many chunks a term, as `terms` gives it, stands."""
        if self._bm25 is None or (number := self._bm25.vocab_dict.get(term)) is None:
            return 0
        borders = self._bm25.scores["indptr"]  # scores are stored by term: its column is as long as its list of chunks
        return int(borders[number + 1] - borders[number])

    def search(self, queries: Sequence[str], k: int) -> list[list[tuple[int, float]]]:
        """See `FirstStage`; only chunks with a score above zero."""
        return [self._search_one(query, k) for query in queries]

    def _search_one(self, query: str, k: int) -> list[tuple[int, float]]:
        if self._bm25 is None:
            return []
        known = [term for term in terms(query) if term in self._bm25.vocab_dict]
        if not known:
            return []
        scores = self._bm25.get_scores(known)
        rows = np.flatnonzero(scores > 0)
        return top_rows(rows, scores[rows], self._ids, k)
