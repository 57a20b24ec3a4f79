"""The first step of every filling strategy: have each candidate scored alone."""

from __future__ import annotations

from collections.abc import Mapping

from corag_ray.errors import ProtocolError
from corag_ray.types import Combination


class Singles:
    """Asks for every single, even one over the budget: a reranker ranks the list before the budget cuts it."""

    def __init__(self, count: int) -> None:
        """`count` is the number of candidates."""
        self.scores: list[float | None] = []
        """Of candidates 0, 1, ..: told in the order asked."""
        self._count = count
        self._asked: list[Combination] = []

    def ask(self, limit: int) -> list[Combination]:
        """The singles not told yet, in candidate order."""
        if limit < 1:
            raise ProtocolError(f"ask takes a limit of at least 1, not {limit}.")
        first = len(self.scores)
        self._asked = [(number,) for number in range(first, min(first + limit, self._count))]
        return list(self._asked)

    def tell(self, scores: Mapping[Combination, float | None]) -> None:
        """Give the last ask's scores; of its first few only when the search ends there or goes on asking from there."""
        told = told_of(self._asked, scores)
        self.scores.extend(scores[single] for single in told)
        self._asked = self._asked[len(told) :]

    @property
    def ranked(self) -> list[tuple[int, float]]:
        """(candidate, score) by falling score, ties by candidate number; one that could not be scored is left out."""
        scored = [(number, score) for number, score in enumerate(self.scores) if score is not None]
        return sorted(scored, key=lambda pair: (-pair[1], pair[0]))


def told_of(asked: list[Combination], scores: Mapping[Combination, float | None]) -> list[Combination]:
    """The asked combinations that `scores` tells: its first few, in order.

    Raises:
        ProtocolError: the scores are of others.
    """
    told = asked[: len(scores)]
    if len(told) < len(scores) or any(combination not in scores for combination in told):
        raise ProtocolError(f"tell expects scores of {asked}, or of the first few of them, not of {list(scores)}.")
    return told
