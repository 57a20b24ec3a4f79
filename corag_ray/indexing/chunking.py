"""Cuts documents into chunks of a fixed number of tokens; each chunk is a slice of its document."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from corag_ray.errors import ConfigError
from corag_ray.models.protocols import PromptTokenizer
from corag_ray.prompts import numbered_passage
from corag_ray.types import Chunk, Document

DOCUMENTS_A_CALL = 256
CHARACTERS_A_CALL = 1 << 20
"""The tokenizer gets at most so many documents and about so many characters at once: it bounds the memory."""
COST_NUMBER = 99
"""Costs are counted under this passage number: two digits, the widest that a context of up to 99 chunks shows."""


@dataclass(frozen=True, slots=True)
class Chunking:
    """Chunk size and overlap between neighbours, in generator tokens."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    size_tokens: int = 128
    overlap_tokens: int = 0

    def __post_init__(self) -> None:
        """Refuse sizes that cannot advance."""
        if self.size_tokens < 1:
            raise ConfigError(f"chunking.size_tokens must be at least 1, not {self.size_tokens}.")
        if not 0 <= self.overlap_tokens < self.size_tokens:
            raise ConfigError(
                f"chunking.overlap_tokens must be from 0 to {self.size_tokens - 1} (below size_tokens), "
                f"not {self.overlap_tokens}."
            )


def chunk_documents(documents: Iterable[Document], chunking: Chunking, tokenizer: PromptTokenizer) -> Iterator[Chunk]:
    """Chunks in document order, with their costs; blank chunks are left out."""
    for group in _groups(documents):
        chunks = [
            chunk
            for document, starts in zip(group, tokenizer.offsets([d.text for d in group]), strict=True)
            for chunk in _cut(document, starts, chunking)
        ]
        costs = tokenizer.count([numbered_passage(COST_NUMBER, chunk.text) for chunk in chunks])
        yield from (replace(chunk, cost=cost) for chunk, cost in zip(chunks, costs, strict=True))


def chunk_id(doc_id: str, start: int, end: int, chunking: Chunking) -> int:
    """A stable unsigned 64-bit hash of (document, span, chunking)."""
    key = f"{doc_id}\0{start}\0{end}\0{chunking.size_tokens}\0{chunking.overlap_tokens}"
    return int.from_bytes(hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _groups(documents: Iterable[Document]) -> Iterator[list[Document]]:
    group: list[Document] = []
    characters = 0
    for document in documents:
        group.append(document)
        characters += len(document.text)
        if len(group) == DOCUMENTS_A_CALL or characters >= CHARACTERS_A_CALL:
            yield group
            group, characters = [], 0
    if group:
        yield group


def _cut(document: Document, starts: Sequence[int], chunking: Chunking) -> Iterator[Chunk]:
    """Slices between token starts. Without overlap they tile the document but for blanks at their ends.

    A character of several tokens (Chinese, emoji) belongs to the chunk of its last one: both sides cut at its start.
    With overlap, two neighbours can come to the same slice by that rule or by their blanks: it is one chunk.
    """
    borders = [0, *starts[1:], len(document.text)]  # characters without a token (control characters) go with the first
    step = chunking.size_tokens - chunking.overlap_tokens
    position = 0
    previous = (0, 0)
    for first in range(0, max(1, len(starts) - chunking.overlap_tokens), step):
        last = min(first + chunking.size_tokens, len(starts))
        piece = document.text[borders[first] : borders[last]]
        text = piece.strip()
        if not text:
            continue
        start = borders[first] + len(piece) - len(piece.lstrip())
        end = start + len(text)
        if (start, end) == previous:
            continue
        previous = (start, end)
        yield Chunk(
            chunk_id(document.doc_id, start, end, chunking), document.doc_id, position, start, end, text, cost=0
        )
        position += 1
