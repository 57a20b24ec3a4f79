"""A query's tokens beside the nearest token of each chunk: all that the set head reads of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from corag_ray.models.cosines import cosines
from corag_ray.models.protocols import FloatArray

TIE_DECIMALS = 4
"""Cosines are compared to so many decimals, the first token winning: the last bits of a product choose no other."""


@dataclass(frozen=True, slots=True)
class TokenMatches:
    """Of k chunks and a query of t - 1 word pieces; as token 0 the mean of its pieces stands before them.

    Attributes:
        query: [t, dim] the query's unit vectors.
        nearest: [k, t, dim] of each chunk the unit vector nearest to each of them; beside token 0, that of the mean of
            the chunk's pieces. Zeros where chunk or query has no word piece.
        cosines: [k, t] of each with its nearest; 0 where there is none.
    """

    query: FloatArray
    nearest: FloatArray
    cosines: FloatArray

    def of_chunks(self, numbers: Sequence[int]) -> TokenMatches:
        """Those of some of the chunks, in the order of `numbers`."""
        return TokenMatches(self.query, self.nearest[numbers], self.cosines[numbers])

    def as_type(self, dtype: type[np.float16] | type[np.float32]) -> TokenMatches:
        """The same numbers in another type: thousands of questions are kept as float16, the head reads float32."""
        return TokenMatches(self.query.astype(dtype), self.nearest.astype(dtype), self.cosines.astype(dtype))


def match_tokens(query_pieces: FloatArray, chunks: Sequence[FloatArray]) -> TokenMatches:
    """Match a query's unit vectors [t - 1, dim] with those of each chunk, [pieces, dim]."""
    query = np.concatenate([_mean(query_pieces), query_pieces])
    nearest = np.zeros((len(chunks), *query.shape), dtype=np.float32)
    found = np.zeros(nearest.shape[:2], dtype=np.float32)
    filled = [number for number, pieces in enumerate(chunks) if len(pieces)]
    if not filled:
        return TokenMatches(query, nearest, found)
    of_all = cosines(np.concatenate([chunks[number] for number in filled]), query_pieces)  # one product for all chunks
    starts = np.cumsum([len(chunks[number]) for number in filled[:-1]])
    for number, block in zip(filled, np.split(of_all, starts), strict=True):
        best = block.round(TIE_DECIMALS).argmax(axis=0)
        nearest[number] = np.concatenate([_mean(chunks[number]), chunks[number][best]])
        found[number, 0] = (nearest[number, 0] * query[0]).sum()
        found[number, 1:] = block[best, np.arange(len(best))]
    return TokenMatches(query, nearest, found)


def _mean(pieces: FloatArray) -> FloatArray:
    """The unit vector of the mean of unit vectors, [1, dim]; zeros of none."""
    total = pieces.sum(axis=0, keepdims=True, dtype=np.float32)
    mean: FloatArray = total / np.maximum(np.linalg.norm(total), np.float32(1e-12))
    return mean
