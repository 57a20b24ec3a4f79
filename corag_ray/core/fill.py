"""Filling the budget: have each candidate scored alone, then choose as the parameters say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from corag_ray.core.strategy import Candidates, Reading, Stopped, told_of
from corag_ray.errors import ProtocolError
from corag_ray.types import Combination

Ranked = Sequence[tuple[int, float]]
"""(candidate, score) by falling score, ties by candidate number; one that could not be scored is left out."""


class Filling(Protocol):
    """Parameters that say how the budget is filled."""

    needs_similarity: ClassVar[bool]
    """Whether `Candidates.similarity` is read."""

    @property
    def reading(self) -> Reading:
        """Which of the reranker's two values is told."""
        ...

    def fill(self, ranked: Ranked, candidates: Candidates, budget_tokens: int) -> list[int]:
        """The chosen candidates in the order chosen."""
        ...


class SinglesFill:
    """Asks for every single, even one over the budget: a reranker ranks the list before the budget cuts it."""

    def __init__(self, candidates: Candidates, budget_tokens: int, params: Filling) -> None:
        """Take a query's candidates.

        Raises:
            ProtocolError: they come without the similarities that the parameters need.
        """
        if params.needs_similarity and len(candidates.similarity) != len(candidates):
            raise ProtocolError(
                f"{type(params).__name__} needs Candidates.similarity of all {len(candidates)} candidates, "
                f"not of {len(candidates.similarity)}."
            )
        self.reading: Reading = params.reading
        self._candidates = candidates
        self._budget_tokens = budget_tokens
        self._params = params
        self._scores: list[float | None] = []  # of candidates 0, 1, ..: told in the order asked
        self._asked: list[Combination] = []

    def ask(self, limit: int) -> list[Combination]:
        """The singles not told yet, in candidate order."""
        first = len(self._scores)
        self._asked = [(number,) for number in range(first, min(first + limit, len(self._candidates)))]
        return list(self._asked)

    def tell(self, scores: Mapping[Combination, float | None]) -> None:
        """Give the last ask's scores; of its first few only when the search ends there or goes on asking from there."""
        told = told_of(self._asked, scores)
        self._scores.extend(scores[single] for single in told)
        self._asked = self._asked[len(told) :]

    def best(self) -> tuple[Combination, float] | None:
        """The filled combination, and **the score of its first chunk**: the combination itself was never scored."""
        scored = [(number, score) for number, score in enumerate(self._scores) if score is not None]
        ranked = sorted(scored, key=lambda pair: (-pair[1], pair[0]))
        chosen = self._params.fill(ranked, self._candidates, self._budget_tokens)
        top = self._scores[chosen[0]] if chosen else None
        return None if top is None else (tuple(chosen), top)

    def why_stopped(self) -> Stopped:
        """Every single is scored, or it is unfinished."""
        return "all_scored" if len(self._scores) == len(self._candidates) else "unfinished"
