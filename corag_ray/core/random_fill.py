"""A random combination within the budget: what any method must beat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from corag_ray.core.strategy import Candidates, Reading, Stopped, check_reading, told_of
from corag_ray.types import Combination


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomParams:
    """The seed; the draw also depends on the candidates, so that questions differ."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    seed: int = 0
    reading: Reading = "raw"

    def __post_init__(self) -> None:
        """Refuse unknown names."""
        check_reading(self.reading)


class RandomFill:
    """Goes through the candidates in random order and takes what fits; only the result is scored."""

    def __init__(self, candidates: Candidates, budget_tokens: int, params: RandomParams) -> None:
        self.reading: Reading = params.reading
        order = list(range(len(candidates)))
        candidates.draw(f"fill {params.seed}").shuffle(order)
        chosen: list[int] = []
        room = budget_tokens
        for number in order:
            if candidates.costs[number] <= room:
                chosen.append(number)
                room -= candidates.costs[number]
        self._chosen: Combination = tuple(chosen if candidates.order_matters else sorted(chosen))
        self._asked: list[Combination] = []
        self._told = not chosen
        self._score: float | None = None

    def ask(self, limit: int) -> list[Combination]:
        """The drawn combination, once."""
        self._asked = [] if self._told else [self._chosen]
        return list(self._asked)

    def tell(self, scores: Mapping[Combination, float | None]) -> None:
        """Give its score."""
        for combination in told_of(self._asked, scores):
            self._score, self._told = scores[combination], True
        self._asked = []

    def best(self) -> tuple[Combination, float] | None:
        """The drawn combination; None when it could not be scored or nothing fits."""
        return None if self._score is None else (self._chosen, self._score)

    def why_stopped(self) -> Stopped:
        """The one draw is scored (if it holds anything), or it is unfinished."""
        return "all_scored" if self._told else "unfinished"
