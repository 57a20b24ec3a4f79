"""BM25 of a combination read as one document."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from corag_ray.models.calibration import Calibration, cut_to_unit
from corag_ray.models.lexical import LexicalIndex, terms
from corag_ray.models.protocols import FloatArray
from corag_ray.types import Chunk, Combination, Score

K1, B = 1.5, 0.75
"""As in the first stage."""


@dataclass(frozen=True, slots=True)
class PreparedTerms:
    """Of k candidates and t distinct query terms: weights [t], occurrences [k, t], lengths in tokens [k]."""

    weights: FloatArray
    occurrences: FloatArray
    lengths: FloatArray


class BM25Combination:
    """BM25 (Lucene's variant; Robertson and Zaragoza, 2009) of the query against the chunks joined to one document.

    Occurrences and lengths add up, so a second mention counts less than the first and an unrelated chunk lowers the
    score. A length is a chunk's cost in generator tokens, against the corpus's mean. The score is blind to order.
    `raw` is at least 0 and grows with the question and the corpus; its share of the most that any document could reach
    does not. So a calibration reads the share, which without one is `calibrated`, in 0..1.
    """

    name = "bm25"
    order_sensitive = False
    monotone = False
    memoised = False

    def __init__(self, lexical: LexicalIndex, mean_length: float, calibration: Calibration | None = None) -> None:
        """`lexical` knows in how many chunks a term stands; `mean_length` is the mean cost of the corpus's chunks."""
        self._lexical = lexical
        self._mean_length = mean_length
        self._calibrated = calibration.calibrated if calibration else cut_to_unit

    def prepare(self, query: str, candidates: Sequence[Chunk], rows: Sequence[int] | None) -> PreparedTerms:
        """Count the query's terms in each candidate; a term counts as often as the query says it."""
        asked = Counter(terms(query))
        counted = [Counter(terms(chunk.text)) for chunk in candidates]
        weights = [times * self._rarity(term) for term, times in asked.items()]
        return PreparedTerms(
            np.array(weights, dtype=np.float32),
            np.array([[found[term] for term in asked] for found in counted], dtype=np.float32).reshape(
                len(counted), len(asked)
            ),
            np.array([chunk.cost for chunk in candidates], dtype=np.float32),
        )

    def score(self, pairs: Sequence[tuple[PreparedTerms, Combination]]) -> list[Score]:
        """One score a pair, in order; the empty combination scores 0."""
        scores = []
        for prepared, combination in pairs:
            members = sorted(combination)
            found = prepared.occurrences[members].sum(axis=0)
            length = float(prepared.lengths[members].sum())
            saturated = found / (K1 * (1 - B + B * length / self._mean_length) + found)
            raw, most = float(prepared.weights @ saturated), float(prepared.weights.sum())
            scores.append(Score(raw, self._calibrated(raw / most if most > 0 else 0.0)))
        return scores

    def _rarity(self, term: str) -> float:
        """Lucene's inverse document frequency: above 0 even for a term of every chunk."""
        found = self._lexical.chunks_with(term)
        return math.log(1 + (self._lexical.num_chunks - found + 0.5) / (found + 0.5))
