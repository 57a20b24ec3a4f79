"""The shapes of the models: one Protocol a kind, batch-first, plain values, synchronous."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from corag_ray.errors import RowError
from corag_ray.models.batches import Padding
from corag_ray.types import Chunk, Combination, Generation, Score

FloatArray = NDArray[np.float32]
TokenVectors = Callable[[Sequence[int]], list[FloatArray]]
"""From store rows to the stored unit vectors of their word pieces, [pieces, dim] each."""
IdArray = NDArray[np.int32]
"""Token ids of one text, special tokens left out, [tokens]."""
TokenIds = Callable[[Sequence[int]], list[IdArray]]
"""From store rows to the stored ids of their chunks in a model's vocabulary, special tokens left out, [tokens] each."""
StoredIds = Callable[[str], TokenIds | None]
"""From a tokenizer's key to what an index keeps of its chunks by that tokenizer; None where it keeps nothing."""

Prepared = TypeVar("Prepared")


class Embedder(Protocol):
    """Texts to unit vectors, and to the unit vectors of their tokens.

    `windowed` counts the texts so far that were longer than the model's window and were read in several.
    """

    dim: int
    windowed: int

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Unit vectors, [len(texts), dim]; `[]` gives [0, dim]."""
        ...

    def embed_with_tokens(self, texts: Sequence[str]) -> tuple[FloatArray, list[FloatArray]]:
        """`embed`, and for each text the unit vectors of its word pieces, [pieces, dim], special tokens left out."""
        ...


class FirstStage(Protocol):
    """Finds candidates: best first, ties by chunk id, and the same prefix whatever `k`."""

    def search(self, queries: Sequence[str], k: int) -> list[list[tuple[int, float]]]:
        """For each query at most `k` pairs (row of the chunk store, score), scores not increasing."""
        ...


class Reranker(Protocol, Generic[Prepared]):
    """Values ordered combinations of candidates for a query; keeps no state between calls.

    `order_sensitive`: the order of a combination can change its score. `monotone`: adding a candidate never lowers it.
    `memoised`: computing a score takes longer than looking it up, and the class is a `MemoisedReranker`.
    """

    name: str
    order_sensitive: bool
    monotone: bool
    memoised: bool

    def prepare(self, query: str, candidates: Sequence[Chunk], rows: Sequence[int] | None) -> Prepared:
        """What is computed once a query: small and picklable.

        `rows` are the candidates' rows in the chunk store; None where they are not of the store, and what an index
        keeps of chunks is then computed from their texts.
        """
        ...

    def score(self, pairs: Sequence[tuple[Prepared, Combination]]) -> list[Score]:
        """One score a pair, in order; pairs of many queries may stand in one call. `[]` gives `[]`."""
        ...


class MemoisedReranker(Reranker[Prepared], Protocol):
    """One whose raw score depends on nothing but itself, the query's text and the candidates' texts: a key of the memo.

    `template_version` is raised with every change of what is read around and between the texts, of windows and of how
    they are pooled: what a memo on disk holds of the version before then no longer counts.
    """

    template_version: int

    def calibrated(self, raw: float) -> float:
        """What `score` gives as the calibrated value beside this raw one; NaN stays NaN."""
        ...


@runtime_checkable
class WindowedReranker(Reranker[Prepared], Protocol):
    """One whose model reads so many tokens at once; it can say how a pair fits them, and computes no score for that.

    A query keeps at most half of the window and loses its end beyond; chunks go in as many windows as they take.
    """

    def windows(self, pairs: Sequence[tuple[Prepared, Combination]]) -> list[int]:
        """In how many windows each pair is read, at least 1, in order."""
        ...

    def query_tokens(self, prepared: Prepared) -> tuple[int, int]:
        """How many tokens the query has, and how many of them are read."""
        ...


@runtime_checkable
class PaddedReranker(Protocol):
    """One that counts the positions of its forward passes."""

    @property
    def padding(self) -> Padding:
        """The positions of all forward passes so far, and how many of them held a token."""
        ...


class PromptTokenizer(Protocol):
    """Counts as the generator counts. `context_window` is in tokens, prompt and answer together."""

    name: str
    context_window: int

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text on its own, no special tokens added."""
        ...

    def offsets(self, texts: Sequence[str]) -> list[list[int]]:
        """For each text the character at which each of its tokens starts, not decreasing."""
        ...

    def count_prompts(self, prompts: Sequence[str]) -> list[int]:
        """Tokens of each prompt as the model receives it, chat template included."""
        ...


class Generator(Protocol):
    """Writes an answer to each prompt."""

    name: str

    def generate(self, prompts: Sequence[str], max_new_tokens: int) -> Sequence[Generation | RowError]:
        """Greedy answers, one a prompt, in order; an error where one prompt alone cannot be answered.

        The caller keeps prompt plus `max_new_tokens` within the window.
        """
        ...


class StreamingGenerator(Generator, Protocol):
    """One that can also tell an answer while it writes it."""

    def stream(self, prompt: str, max_new_tokens: int) -> Iterator[str | Generation]:
        """The greedy answer in pieces, some of them empty, and last of all the whole of it, outer blanks taken off.

        Work is done only while the next piece is asked for: who asks for no more, or closes the iterator, has it
        stopped.

        Raises:
            RowError: this prompt cannot be answered.
        """
        ...
