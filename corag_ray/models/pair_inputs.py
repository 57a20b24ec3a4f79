"""A cross-encoder's inputs put together from token ids: template, separator, windows, and how windows are pooled."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from corag_ray.errors import ConfigError
from corag_ray.models.chunk_tokenizer import ChunkTokenizer
from corag_ray.models.protocols import IdArray

TEMPLATE_VERSION = 1
"""Raised whenever the same texts would be read by other ids, in other windows or pooled otherwise."""

OVERLAP = 4
"""Neighbouring pieces of a chunk that alone exceeds the window share a quarter of it."""


class Pooling(enum.Enum):
    """How the raw scores of a combination's windows become one.

    The maximum is the default: a combination is worth what its best window shows, so a window of irrelevant chunks
    takes nothing from one that answers the question (MaxP: Dai and Callan, SIGIR 2019). The mean does take from it,
    which is what a reader who is misled by noise would have.
    """

    MAXIMUM = "maximum"
    MEAN = "mean"

    def pooled(self, raw: Sequence[float]) -> float:
        """One score; NaN where any window has none, since the others do not show the whole."""
        if not all(map(math.isfinite, raw)):
            return math.nan
        return max(raw) if self is Pooling.MAXIMUM else math.fsum(raw) / len(raw)


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
    """The special tokens around a query and a document, the ids between two chunks, and the token types of all."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    separator: tuple[int, ...]
    types: tuple[tuple[int, ...], int, tuple[int, ...], int, tuple[int, ...]]
    """Of `before`, a query's token, `between`, a document's token, `after`."""

    @property
    def special(self) -> int:
        """How many positions of the window hold neither query nor document."""
        return len(self.before) + len(self.between) + len(self.after)


class PairInputs:
    """From texts to ids, and from a query's and chunks' ids to what the model reads.

    A combination's document is its chunks' ids with the template's separator between them, the whole of it where that
    fits. Else it goes in windows on the chunks' borders: each holds the query and as many consecutive chunks as fit,
    and the next begins with the last one's last chunk, so that neighbours are seen together, where those two fit. A
    chunk that alone exceeds a window goes in pieces that fill it, a quarter shared. Texts are read as text: a passage
    that holds `[SEP]` or `</s>` closes nothing.
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
        tokenizer = ChunkTokenizer.like(backend)  # a copy, since transformers changes its own as it goes
        self.ids = tokenizer.ids
        """From texts to the ids of each alone, in full."""
        self.template = read_template(tokenizer.tokenizer)
        self._room = max_tokens - self.template.special
        if self._room < 2:
            raise ConfigError(f"max_tokens {max_tokens} leaves no room beside {self.template.special} special tokens.")

    @property
    def longest_query(self) -> int:
        """Tokens that a query may have: half of what the special tokens leave, so that the other half holds chunks."""
        return self._room // 2

    def windows(self, query: IdArray, chunks: Sequence[IdArray]) -> list[PairInput]:
        """One input where all chunks fit beside the query, else the windows in order; no chunks give one input."""
        room = self._room - len(query)
        separator = _array(self.template.separator)
        if _joined_length(chunks, len(separator)) <= room:
            return [self._input(query, chunks, separator)]
        parts = [piece for chunk in chunks for piece in _pieces(chunk, room)]
        runs = _runs([len(part) for part in parts], len(separator), room)
        return [self._input(query, parts[first:end], separator) for first, end in runs]

    def types(self, item: PairInput) -> IdArray:
        """The token type of each of an input's ids."""
        before, query, between, document, after = self.template.types
        of_document = len(item.ids) - item.query_tokens - self.template.special
        types = [*before, *[query] * item.query_tokens, *between, *[document] * of_document, *after]
        return _array(types)

    def _input(self, query: IdArray, chunks: Sequence[IdArray], separator: IdArray) -> PairInput:
        document = [part for chunk in chunks for part in (separator, chunk)][1:]
        before, between, after = map(_array, (self.template.before, self.template.between, self.template.after))
        return PairInput(np.concatenate([before, query, between, *document, after]), len(query))


def read_template(tokenizer: Tokenizer) -> Template:
    """What the tokenizer's post-processor puts around a pair, seen once on a pair of letters.

    The separator is what stands between two letters beyond their own ids: nothing in WordPiece, nor where a word's
    first piece carries the mark of the blank before it. Where a letter has other ids after a blank than alone (BPE over
    bytes), it is the blank's own ids.

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
        separator=_separator(tokenizer),
        types=(types[:query], types[query], types[query_end:document], types[document], types[document_end:]),
    )


def _separator(tokenizer: Tokenizer) -> tuple[int, ...]:
    letter, two, blank = (tokenizer.encode(text, add_special_tokens=False).ids for text in ("a", "a a", " "))
    own = len(letter)
    if len(two) >= 2 * own and two[:own] == letter == two[-own:]:
        return tuple(two[own:-own])
    return tuple(blank)


def _array(ids: Sequence[int]) -> IdArray:
    return np.array(ids, dtype=np.int32)


def _joined_length(chunks: Sequence[IdArray], separator: int) -> int:
    return sum(map(len, chunks)) + separator * max(0, len(chunks) - 1)


def _pieces(chunk: IdArray, room: int) -> list[IdArray]:
    """The chunk itself where it fits, else pieces of `room` ids, neighbours sharing a quarter, the last one shorter."""
    if len(chunk) <= room:
        return [chunk]
    shared = room // OVERLAP
    return [chunk[start : start + room] for start in range(0, len(chunk) - shared, room - shared)]


def _runs(lengths: Sequence[int], separator: int, room: int) -> list[tuple[int, int]]:
    """(first, end) of the longest runs of consecutive parts that fit, each from the last one's last part if it can."""
    runs: list[tuple[int, int]] = []
    first = 0
    while True:
        end, used = first + 1, lengths[first]
        while end < len(lengths) and used + separator + lengths[end] <= room:
            used += separator + lengths[end]
            end += 1
        runs.append((first, end))
        if end == len(lengths):
            return runs
        first = end - 1 if lengths[end - 1] + separator + lengths[end] <= room else end
