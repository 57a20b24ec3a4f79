"""NaiveRAG: score each candidate alone, then fill the budget in the order of the scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from corag_ray.core.fill import Ranked
from corag_ray.core.strategy import Candidates, Reading, check_reading
from corag_ray.errors import unknown_name

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
    needs_similarity: ClassVar[bool] = False

    on_misfit: OnMisfit = "skip"
    reading: Reading = "raw"

    def __post_init__(self) -> None:
        """Refuse unknown names."""
        if self.on_misfit not in get_args(OnMisfit):
            raise unknown_name("on_misfit", str(self.on_misfit), get_args(OnMisfit))
        check_reading(self.reading)

    def fill(self, ranked: Ranked, candidates: Candidates, budget_tokens: int) -> list[int]:
        """See `Filling`."""
        chosen: list[int] = []
        room = budget_tokens
        for number, _ in ranked:
            if candidates.costs[number] <= room:
                chosen.append(number)
                room -= candidates.costs[number]
            elif self.on_misfit == "stop":
                break
        return chosen
