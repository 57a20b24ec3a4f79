"""Filling the budget with regard to redundancy: MMR, submodular coverage, and relevance minus pairwise similarity."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from corag_ray.core.fill import Ranked
from corag_ray.core.strategy import Candidates, Reading, check_reading
from corag_ray.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class MmrParams:
    """Maximal marginal relevance (Carbonell and Goldstein, SIGIR 1998).

    The next chunk has the highest `weight * relevance - (1 - weight) * (highest similarity to a chosen chunk)`.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}
    needs_similarity: ClassVar[bool] = True

    weight: float = 0.7
    reading: Reading = "calibrated"

    def __post_init__(self) -> None:
        """Refuse a weight outside 0..1 and unknown names."""
        if not 0 <= self.weight <= 1:
            raise ConfigError(f"weight must lie in 0..1, not {self.weight}.")
        check_reading(self.reading)

    def fill(self, ranked: Ranked, candidates: Candidates, budget_tokens: int) -> list[int]:
        """See `Filling`."""
        closest: dict[int, float] = {}  # not filled with 0: every similarity to a chosen chunk can lie below it

        def value(number: int, relevance: float) -> float:
            return self.weight * relevance - (1 - self.weight) * closest.get(number, 0.0)

        def note(chosen: int) -> None:
            for number, _ in ranked:
                similarity = candidates.similarity[number][chosen]
                closest[number] = max(closest.get(number, similarity), similarity)

        return _greedy(ranked, candidates.costs, budget_tokens, value, note)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarityPenaltyParams:
    """The objective of AdaGReS (Peng et al., arXiv 2512.25052), with a fixed trade-off.

    Chosen greedily to maximise the sum of relevances minus `penalty` times the sum of the chosen chunks' pairwise
    similarities; it ends when the next chunk would lower that. The paper fits the trade-off to each query.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}
    needs_similarity: ClassVar[bool] = True

    penalty: float = 0.2
    reading: Reading = "calibrated"

    def __post_init__(self) -> None:
        """Refuse a penalty that is no finite number from 0 on, and unknown names."""
        if not (math.isfinite(self.penalty) and self.penalty >= 0):
            raise ConfigError(f"penalty must be a finite number of at least 0, not {self.penalty}.")
        _check_calibrated(self.reading)

    def fill(self, ranked: Ranked, candidates: Candidates, budget_tokens: int) -> list[int]:
        """See `Filling`."""
        overlap = dict.fromkeys((number for number, _ in ranked), 0.0)

        def value(number: int, relevance: float) -> float:
            return relevance - self.penalty * overlap[number]

        def note(chosen: int) -> None:
            for number in overlap:
                overlap[number] += candidates.similarity[number][chosen]

        return _greedy(ranked, candidates.costs, budget_tokens, value, note, least=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageParams:
    """Budgeted submodular coverage (Lin and Bilmes, NAACL 2010): facility location, weighted by relevance.

    A set's value is the sum, over all candidates, of relevance times the similarity to the nearest chosen chunk (both
    cut at 0). The next chunk has the highest gain over `cost ** cost_power`; at the end the best single chunk is taken
    instead, if it is worth more than the set.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}
    needs_similarity: ClassVar[bool] = True

    cost_power: float = 1.0
    reading: Reading = "calibrated"

    def __post_init__(self) -> None:
        """Refuse a power outside 0..10, above which a cost's power would leave the range of numbers; unknown names."""
        if not 0 <= self.cost_power <= 10:
            raise ConfigError(f"cost_power must lie in 0..10, not {self.cost_power}.")
        _check_calibrated(self.reading)

    def fill(self, ranked: Ranked, candidates: Candidates, budget_tokens: int) -> list[int]:
        """See `Filling`."""
        relevance = {number: max(score, 0.0) for number, score in ranked}
        covered = dict.fromkeys(relevance, 0.0)

        def gain(number: int) -> float:
            near = candidates.similarity[number]
            return sum(weight * max(near[other] - covered[other], 0.0) for other, weight in relevance.items())

        def value(number: int, _: float) -> float:
            return gain(number) / math.pow(candidates.costs[number], self.cost_power)

        def note(chosen: int) -> None:
            for other in covered:
                covered[other] = max(covered[other], candidates.similarity[chosen][other])

        alone = {number: gain(number) for number in relevance if candidates.costs[number] <= budget_tokens}
        chosen = _greedy(ranked, candidates.costs, budget_tokens, value, note)
        together = sum(weight * covered[number] for number, weight in relevance.items())
        best = max(alone, key=lambda number: alone[number], default=None)
        return [best] if best is not None and alone[best] > together else chosen


def _check_calibrated(reading: Reading) -> None:
    """Refuse raw scores, which may lie below 0 however relevant a chunk is, where relevances are set against 0."""
    check_reading(reading)
    if reading != "calibrated":
        raise ConfigError(f"reading must be calibrated, not {reading}: relevances below 0 would count as none.")


def _greedy(
    ranked: Ranked,
    costs: Sequence[int],
    budget_tokens: int,
    value: Callable[[int, float], float],
    note: Callable[[int], None],
    least: float = -math.inf,
) -> list[int]:
    """Take the candidate of highest value that fits, note it, and again; ties by relevance, then candidate number."""
    left = dict(ranked)
    chosen: list[int] = []
    room = budget_tokens
    while fitting := {number: score for number, score in left.items() if costs[number] <= room}:
        number = max(fitting, key=lambda n: value(n, fitting[n]))
        if value(number, left.pop(number)) < least:
            break
        chosen.append(number)
        room -= costs[number]
        note(number)
    return chosen
