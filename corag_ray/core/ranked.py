"""NaiveRAG: score each candidate alone, then fill the budget in the order of the scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from corag_ray.core.singles import Singles
from corag_ray.core.strategy import Candidates, Reading, check_reading
from corag_ray.errors import unknown_name
from corag_ray.types import Combination

OnMisfit = Literal["skip", "stop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedParams:
    """How NaiveRAG ranks and fills.

    Attributes:
        on_misfit: at a candidate that no longer fits, `skip` it and try the next, or `stop` filling.
        reading: raw by default: both readings rank alike, but calibrated values crowd near 0 and 1, where rounding
            makes ties of different scores.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    on_misfit: OnMisfit = "skip"
    reading: Reading = "raw"

    def __post_init__(self) -> None:
        """Refuse unknown names."""
        if self.on_misfit not in get_args(OnMisfit):
            raise unknown_name("on_misfit", str(self.on_misfit), get_args(OnMisfit))
        check_reading(self.reading)


class RankedFill:
    """The best singles, one after another, as far as the budget goes."""

    def __init__(self, candidates: Candidates, budget_tokens: int, params: RankedParams) -> None:
        self.reading: Reading = params.reading
        self._candidates = candidates
        self._budget_tokens = budget_tokens
        self._on_misfit = params.on_misfit
        self._singles = Singles(len(candidates))

    def ask(self, limit: int) -> list[Combination]:
        """The singles not told yet, in candidate order."""
        return self._singles.ask(limit)

    def tell(self, scores: Mapping[Combination, float | None]) -> None:
        """Give the last ask's scores."""
        self._singles.tell(scores)

    def best(self) -> tuple[Combination, float] | None:
        """The filled combination, and **the score of its first chunk**: the combination itself was never scored."""
        chosen: list[int] = []
        room = self._budget_tokens
        for number, _ in self._singles.ranked:
            if self._candidates.costs[number] <= room:
                chosen.append(number)
                room -= self._candidates.costs[number]
            elif self._on_misfit == "stop":
                break
        top = self._singles.scores[chosen[0]] if chosen else None
        return None if top is None else (tuple(chosen), top)
