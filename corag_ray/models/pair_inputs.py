"""A cross-encoder's inputs put together from token ids: template, separator, windows, and how windows are pooled."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from tokenizers import Tokenizer

from corag_ray.errors import ConfigError
from corag_ray.models.chunk_tokenizer import ChunkTokenizer
from corag_ray.models.protocols import IdArray, StoredIds

TEMPLATE_VERSION = 2
"""Raised whenever the same texts would be read by other ids, in other windows or pooled otherwise."""

TextOrRow = TypeVar("TextOrRow", str, int)

OVERLAP = 4
"""Neighbouring pieces of a chunk that alone exceeds the window share a quarter of it."""


class Pooling(enum.Enum):
    """How the raw scores of a combination's windows become one.

    By the maximum a combination is worth what its best window shows, so a window of irrelevant chunks takes nothing
    from one that answers the question (MaxP: Dai and Callan, SIGIR 2019); by the mean it does. The soft maximum lies
    between the two: the logarithm of the mean of the scores' exponentials. Every window changes it, so what stands in
    one that is not the best still counts, and the best dominates: one window d below it counts e^-d as much, so that 7
    below, little of it outlasts the rounding of scores; and one that lies far above n - 1 others gives its own score
    less log n.

    Measurement rules the maximum out as the default (`jobs.bench_windows`, 200 combinations of 2,000 tokens in six
    windows, MiniLM after one pass of `jobs.train_reranker`): evidence in the last chunk changes the soft maximum's
    score in 98.5 % and raises it in 76 %, the mean's in 98.5 % and 76.5 %, the maximum's in 19 % and 14.5 %, and a
    truncated input's never. Between the other two it does not decide; the soft maximum is the default because a long
    tail of irrelevant chunks takes less from it.
    """

    MAXIMUM = "maximum"
    MEAN = "mean"
    SOFT_MAXIMUM = "soft_maximum"

    def pooled(self, raw: Sequence[float]) -> float:
        """One score; NaN where any window has none, since the others do not show the whole."""
        if not all(map(math.isfinite, raw)):
            return math.nan
        if self is Pooling.MEAN:
            return math.fsum(raw) / len(raw)
        best = max(raw)
        if self is Pooling.MAXIMUM:
            return best
        # Taken off before, the best one leaves exponentials within 0..1, however large the scores are.
        return best + math.log(math.fsum(math.exp(own - best) for own in raw) / len(raw))


@dataclass(frozen=True, slots=True, eq=False)
class ChunkIds:
    """A chunk's ids, `first` where a document begins with it, `later` behind another; most often one and the same."""

    first: IdArray
    later: IdArray


@dataclass(frozen=True, slots=True, eq=False)
class PairInput:
    """What the model reads at once: ids, special tokens included, and how many of them are the query's."""

    ids: IdArray
    query_tokens: int

    @property
    def key(self) -> tuple[int, bytes]:
        """Equal for equal inputs alone."""
        return self.query_tokens, self.ids.tobytes()


@dataclass(frozen=True, slots=True)
class Template:
    """The special tokens around a query and a document, and the token types of all."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    types: tuple[tuple[int, ...], int, tuple[int, ...], int, tuple[int, ...]]
    """Of `before`, a query's token, `between`, a document's token, `after`."""

    @property
    def special(self) -> int:
        """How many positions of the window hold neither query nor document."""
        return len(self.before) + len(self.between) + len(self.after)


class PairInputs:
    """From texts to ids, and from a query's and chunks' ids to what the model reads.

    A combination's document is what the tokenizer makes of its chunks' texts joined by blanks, put together: the first
    chunk's ids as it has them alone, every other's as it has them behind a blank. So it is to the id for tokenizers
    that read word by word, where no text begins or ends with a blank, and chunks do not.

    The document goes whole where it fits. Else it goes in windows on the chunks' borders: each holds the query and as
    many consecutive chunks as fit, and the next begins with the last one's last chunk, so that neighbours are seen
    together, where those two fit. A chunk that alone exceeds a window goes in pieces that fill it, a quarter shared.
    Texts are read as text: a passage that holds `[SEP]` or `</s>` closes nothing.
    """

    def __init__(self, tokenizer: Any, max_tokens: int) -> None:
        """Of a fast tokenizer of transformers (a copy of its `tokenizers.Tokenizer` is kept) and a window in tokens.

        Raises:
            ConfigError: the tokenizer is none of the `tokenizers` library, has no form for pairs, or the window holds
                little more than that form's special tokens.
        """
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise ConfigError(f"a cross-encoder needs a tokenizer.json; {type(tokenizer).__name__} has none.")
        self._first = ChunkTokenizer.like(backend)  # a copy, since transformers changes its own as it goes
        self._later = self._first.behind_a_blank()
        self.ids = self._first.ids
        """From texts to the ids of each alone, in full."""
        self.template = read_template(self._first.tokenizer)
        self.room = max_tokens - self.template.special
        """What the special tokens leave of the window for query and document, in tokens."""
        if self.room < 2:
            raise ConfigError(f"max_tokens {max_tokens} leaves no room beside {self.template.special} special tokens.")

    @property
    def longest_query(self) -> int:
        """Tokens that a query may have: half of what the special tokens leave, so that the other half holds chunks."""
        return self.room // 2

    def chunk_ids(self, texts: Sequence[str]) -> list[ChunkIds]:
        """The ids of each chunk's text, in full."""
        return _chunk_ids(self._first.ids, None if self._later is self._first else self._later.ids, texts)

    def stored_ids(self, by_key: StoredIds) -> Callable[[Sequence[int]], list[ChunkIds]] | None:
        """From store rows to `chunk_ids` of their texts, as an index keeps them; None where it does not."""
        one_form = self._later is self._first
        first, later = by_key(self._first.key), None if one_form else by_key(self._later.key)
        if first is None or (later is None and not one_form):
            return None
        return functools.partial(_chunk_ids, first, later)

    def windows(self, query: IdArray, chunks: Sequence[ChunkIds]) -> list[PairInput]:
        """One input where all chunks fit beside the query, else the windows in order; no chunks give one input."""
        room = self.room - len(query)
        if sum(map(len, _document(chunks))) <= room:
            return [self._input(query, chunks)]
        parts = [piece for chunk in chunks for piece in _pieces(chunk, room)]
        return [self._input(query, parts[first:end]) for first, end in _runs(parts, room)]

    def types(self, item: PairInput) -> IdArray:
        """The token type of each of an input's ids."""
        before, query, between, document, after = self.template.types
        of_document = len(item.ids) - item.query_tokens - self.template.special
        types = [*before, *[query] * item.query_tokens, *between, *[document] * of_document, *after]
        return _array(types)

    def _input(self, query: IdArray, chunks: Sequence[ChunkIds]) -> PairInput:
        before, between, after = map(_array, (self.template.before, self.template.between, self.template.after))
        return PairInput(np.concatenate([before, query, between, *_document(chunks), after]), len(query))


def read_template(tokenizer: Tokenizer) -> Template:
    """What the tokenizer's post-processor puts around a pair, seen once on a pair of letters.

    Raises:
        ConfigError: the tokenizer makes no ids of a letter, or does not put a pair together.
    """
    pair = tokenizer.encode("a", "a")
    places = {side: [n for n, owner in enumerate(pair.sequence_ids) if owner == side] for side in (0, 1)}
    if not (places[0] and places[1] and places[0][-1] < places[1][0]):
        raise ConfigError("the tokenizer of this folder has no form for a query and a document: a cross-encoder's has.")
    (query, query_end), (document, document_end) = ((found[0], found[-1] + 1) for found in places.values())
    ids, types = tuple(pair.ids), tuple(pair.type_ids)
    return Template(
        before=ids[:query],
        between=ids[query_end:document],
        after=ids[document_end:],
        types=(types[:query], types[query], types[query_end:document], types[document], types[document_end:]),
    )


def _array(ids: Sequence[int]) -> IdArray:
    return np.array(ids, dtype=np.int32)


def _chunk_ids(
    first: Callable[[Sequence[TextOrRow]], list[IdArray]],
    later: Callable[[Sequence[TextOrRow]], list[IdArray]] | None,
    chunks: Sequence[TextOrRow],
) -> list[ChunkIds]:
    """Both forms of each chunk, where `first` and `later` make them of texts or rows; None: the forms are the same."""
    firsts = first(chunks)
    laters = firsts if later is None else later(chunks)
    return [ChunkIds(*forms) for forms in zip(firsts, laters, strict=True)]


def _document(chunks: Sequence[ChunkIds]) -> list[IdArray]:
    """The parts of a document that holds the chunks in this order."""
    return [chunk.later if place else chunk.first for place, chunk in enumerate(chunks)]


def _pieces(chunk: ChunkIds, room: int) -> list[ChunkIds]:
    """The chunk itself where it fits, else pieces of `room` ids, neighbours sharing a quarter, the last one shorter.

    A piece that fills a window begins one, so pieces are cut from the form that a document begins with.
    """
    ids = chunk.first
    if len(ids) <= room:
        return [chunk]
    shared = room // OVERLAP
    pieces = [ids[start : start + room] for start in range(0, len(ids) - shared, room - shared)]
    return [ChunkIds(piece, piece) for piece in pieces]


def _runs(parts: Sequence[ChunkIds], room: int) -> list[tuple[int, int]]:
    """(first, end) of the longest runs of consecutive parts that fit, each from the last one's last part if it can."""
    runs: list[tuple[int, int]] = []
    first = 0
    while True:
        end, used = first + 1, len(parts[first].first)
        while end < len(parts) and used + len(parts[end].later) <= room:
            used += len(parts[end].later)
            end += 1
        runs.append((first, end))
        if end == len(parts):
            return runs
        first = end - 1 if len(parts[end - 1].first) + len(parts[end].later) <= room else end
