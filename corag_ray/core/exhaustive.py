"""CORAG Upper: every combination of a few candidates is scored, and the best one is the answer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from corag_ray.core.incumbent import Incumbent
from corag_ray.core.strategy import Candidates, Reading, Stopped, check_reading, told_of
from corag_ray.errors import ConfigError
from corag_ray.types import Combination

MOST_COMBINATIONS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ExhaustiveParams:
    """What is searched.

    Attributes:
        num_candidates: only the first so many candidates, by first-stage rank.
        max_chunks: chunks of a combination, at most.
        reading: which of the reranker's two values is compared.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    num_candidates: int = 8
    max_chunks: int = 5
    reading: Reading = "raw"

    def __post_init__(self) -> None:
        """Refuse numbers below 1 and unknown names."""
        for name, number in (("num_candidates", self.num_candidates), ("max_chunks", self.max_chunks)):
            if number < 1:
                raise ConfigError(f"{name} must be at least 1, not {number}.")
        check_reading(self.reading)


def num_combinations(num_candidates: int, max_chunks: int, ordered: bool) -> int:
    """Combinations of 1 to `max_chunks` of the candidates, whatever they cost."""
    count = math.perm if ordered else math.comb
    return sum(count(num_candidates, size) for size in range(1, min(max_chunks, num_candidates) + 1))


def check_number(num_candidates: int, max_chunks: int, ordered: bool) -> None:
    """Pass when every combination of so many candidates can be scored.

    Raises:
        ConfigError: there are more than 20,000 of them.
    """
    count = num_combinations(num_candidates, max_chunks, ordered)
    if count > MOST_COMBINATIONS:
        raise ConfigError(
            f"exhaustive search over {num_candidates} candidates and up to {max_chunks} chunks would score "
            f"{count:,} combinations, above {MOST_COMBINATIONS:,}: lower num_candidates or max_chunks."
        )


class ExhaustiveSearch:
    """Scores all ordered combinations within the budget, or all sets where the score is blind to order."""

    def __init__(self, candidates: Candidates, budget_tokens: int, params: ExhaustiveParams) -> None:
        """Enumerate, smaller combinations first.

        Raises:
            ConfigError: there are more than 20,000 of them.
        """
        self.reading: Reading = params.reading
        pool = range(min(len(candidates), params.num_candidates))
        check_number(len(pool), params.max_chunks, candidates.order_matters)
        arrange = itertools.permutations if candidates.order_matters else itertools.combinations
        costs = candidates.costs
        self._waiting: list[Combination] = [
            combination
            for size in range(1, min(params.max_chunks, len(pool)) + 1)
            for combination in arrange(pool, size)
            if sum(costs[number] for number in combination) <= budget_tokens
        ]
        self._costs = costs
        self._told = 0
        self._asked: list[Combination] = []
        self._incumbent = Incumbent()

    def ask(self, limit: int) -> list[Combination]:
        """The next combinations of the enumeration."""
        self._asked = self._waiting[self._told : self._told + limit]
        return list(self._asked)

    def tell(self, scores: Mapping[Combination, float | None]) -> None:
        """Give the last ask's scores."""
        for combination in told_of(self._asked, scores):
            self._incumbent.offer(combination, scores[combination], sum(self._costs[n] for n in combination))
        self._told += len(scores)
        self._asked = self._asked[len(scores) :]

    def best(self) -> tuple[Combination, float] | None:
        """The highest score; the cheaper on ties, then the one enumerated first."""
        return self._incumbent.answer

    def why_stopped(self) -> Stopped:
        """Every combination that fits is scored, or it is unfinished."""
        return "all_scored" if self._told == len(self._waiting) else "unfinished"
