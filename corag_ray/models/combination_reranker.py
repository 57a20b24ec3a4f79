"""The combination reranker: a learned score of ordered combinations over stored token vectors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from corag_ray.models.calibration import Calibration, sigmoid
from corag_ray.models.protocols import Embedder, TokenVectors
from corag_ray.models.set_head import SetHead
from corag_ray.models.token_matches import match_tokens
from corag_ray.models.torch_setup import Compute
from corag_ray.types import Chunk, Combination, Score

BATCH_POSITIONS = 8_192
"""Rows of a chunk beside a token in one forward pass, at most: their numbers stay in a CPU's cache."""
PreparedRows = NDArray[np.float16]
"""[1 + k, t, row]: the head's rows of no chunk and of k candidates, beside each of the query's t tokens."""


class CombinationReranker:
    """A set head over MiniLM's frozen token vectors: it sees coverage, redundancy, distraction and order.

    The chunks' rows are computed once a query (`prepare`, which reads nothing but token vectors, so no text is too long
    for it); a combination then costs one pass of the head over the rows of its chunks. `raw` is a logit that is trained
    to stand higher for all evidence than for a part of it, and for fewer chunks that bring none; `calibrated` is its
    logistic function where no calibration is given. Chunks beyond the head's last place (the sixth) share that place.
    The empty combination has a score like any other.
    """

    name = "combination"
    order_sensitive = True
    monotone = False
    memoised = False

    def __init__(
        self,
        embedder: Embedder,
        stored: TokenVectors | None,
        head: SetHead,
        compute: Compute,
        calibration: Calibration | None = None,
    ) -> None:
        """`stored` gives the vectors kept at indexing; without it they are computed from the candidates' texts.

        `head` must not be in training. A deterministic `compute` has one combination a pass, so that a score's last
        bits do not depend on its company.
        """
        self._embedder = embedder
        self._stored = stored
        self._head = head
        self._batch_positions = 1 if compute.deterministic else BATCH_POSITIONS
        self._calibrated = calibration.calibrated if calibration else sigmoid

    def prepare(self, query: str, candidates: Sequence[Chunk], rows: Sequence[int] | None) -> PreparedRows:
        """The head's rows: 162 bytes for each candidate and token of the query."""
        _, [query_pieces] = self._embedder.embed_with_tokens([query])
        if self._stored is not None and rows is not None:
            chunks = self._stored(rows)
        else:
            _, chunks = self._embedder.embed_with_tokens([chunk.text for chunk in candidates])
        with torch.inference_mode():
            return self._head.rows(match_tokens(query_pieces, chunks)).half().numpy()

    def score(self, pairs: Sequence[tuple[PreparedRows, Combination]]) -> list[Score]:
        """One score a pair, in order; pairs of one size share passes, whichever query they belong to."""
        by_size: dict[tuple[int, int], list[int]] = defaultdict(list)
        for number, (prepared, combination) in enumerate(pairs):
            by_size[prepared.shape[1], 1 + len(combination)].append(number)
        raw = np.empty(len(pairs))
        for (tokens, places), members in by_size.items():
            most = max(1, self._batch_positions // (tokens * places))
            for start in range(0, len(members), most):
                batch = members[start : start + most]
                raw[batch] = self._logits([pairs[number] for number in batch])
        return [Score(value, self._calibrated(value)) for value in raw.tolist()]

    def _logits(self, pairs: Sequence[tuple[PreparedRows, Combination]]) -> NDArray[np.float32]:
        """Of pairs of one size."""
        rows = np.stack([prepared[[0, *(1 + number for number in chosen)]] for prepared, chosen in pairs])
        with torch.inference_mode():
            logits: NDArray[np.float32] = self._head(torch.from_numpy(rows).float()).numpy()
        return logits
