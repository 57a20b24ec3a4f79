"""NaiveRAG: score each candidate alone, then fill the budget in the order of the scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from corag_ray.core.strategy import Candidates, Reading
from corag_ray.errors import ProtocolError, unknown_name
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
        if self.reading not in get_args(Reading):
            raise unknown_name("reading", str(self.reading), get_args(Reading))


class RankedFill:
    """Asks for every single, even one over the budget: a reranker ranks the list before the budget cuts it."""

    def __init__(self, candidates: Candidates, budget_tokens: int, params: RankedParams) -> None:
        self.reading: Reading = params.reading
        self._candidates = candidates
        self._budget_tokens = budget_tokens
        self._on_misfit = params.on_misfit
        self._scores: list[float | None] = []  # of candidates 0, 1, ..: told in the order asked
        self._asked: list[Combination] = []

    def ask(self, limit: int) -> list[Combination]:
        """The singles not told yet, in candidate order."""
        if limit < 1:
            raise ProtocolError(f"ask takes a limit of at least 1, not {limit}.")
        first = len(self._scores)
        self._asked = [(number,) for number in range(first, min(first + limit, len(self._candidates)))]
        return list(self._asked)

    def tell(self, scores: Mapping[Combination, float | None]) -> None:
        """Give the last ask's scores; of its first few only when the search ends there or goes on asking from there."""
        told = self._asked[: len(scores)]
        if len(told) < len(scores) or any(single not in scores for single in told):
            raise ProtocolError(
                f"tell expects scores of {self._asked}, or of the first few of them, not of {list(scores)}."
            )
        self._scores.extend(scores[single] for single in told)
        self._asked = self._asked[len(told) :]

    def best(self) -> tuple[Combination, float] | None:
        """The filled combination, and **the score of its first chunk**: the combination itself was never scored.

        Candidates stand by falling score, ties by candidate number; one that could not be scored is passed over.
        """
        ranked = sorted((-score, number) for number, score in enumerate(self._scores) if score is not None)
        chosen: list[int] = []
        room = self._budget_tokens
        for _, number in ranked:
            if self._candidates.costs[number] <= room:
                chosen.append(number)
                room -= self._candidates.costs[number]
            elif self._on_misfit == "stop":
                break
        top = self._scores[chosen[0]] if chosen else None
        return None if top is None else (tuple(chosen), top)
