"""Beam search over combinations, a chunk longer each round; with a width of 1, greedy forward selection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from corag_ray.core.incumbent import Incumbent
from corag_ray.core.strategy import Candidates, Reading, Stopped, check_reading, told_of
from corag_ray.errors import ConfigError, unknown_name
from corag_ray.types import Combination

OnNoGain = Literal["stop", "continue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamParams:
    """How far and how broad the search goes.

    Attributes:
        width: combinations kept each round.
        on_no_gain: when no combination of a round scores above all before, `stop`, or `continue` until nothing fits.
        reading: which of the reranker's two values is compared.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    width: int = 4
    on_no_gain: OnNoGain = "stop"
    reading: Reading = "raw"

    def __post_init__(self) -> None:
        """Refuse a width below 1 and unknown names."""
        if self.width < 1:
            raise ConfigError(f"width must be at least 1, not {self.width}.")
        if self.on_no_gain not in get_args(OnNoGain):
            raise unknown_name("on_no_gain", str(self.on_no_gain), get_args(OnNoGain))
        check_reading(self.reading)


class BeamSearch:
    """Each round lengthens the kept combinations by every candidate that fits and keeps the best `width` of those.

    Where the score is blind to order a set is scored once. The answer is the best combination of all rounds.
    """

    def __init__(self, candidates: Candidates, budget_tokens: int, params: BeamParams) -> None:
        self.reading: Reading = params.reading
        self._candidates = candidates
        self._budget_tokens = budget_tokens
        self._params = params
        self._incumbent = Incumbent()
        self._gained = False
        self._flat = False  # ended by a round that gained nothing
        self._asked: list[Combination] = []
        self._scores: list[tuple[Combination, float | None]] = []  # of this round, as far as told
        self._round = self._longer([()])

    def ask(self, limit: int) -> list[Combination]:
        """The combinations of the round that are not told yet; when all are, those of the next round."""
        if self._round and len(self._scores) == len(self._round):
            self._next_round()
        self._asked = self._round[len(self._scores) :][:limit]
        return list(self._asked)

    def tell(self, scores: Mapping[Combination, float | None]) -> None:
        """Give the last ask's scores."""
        for combination in told_of(self._asked, scores):
            score = scores[combination]
            self._gained |= self._incumbent.offer(combination, score, self._cost(combination))
            self._scores.append((combination, score))
        self._asked = self._asked[len(scores) :]

    def best(self) -> tuple[Combination, float] | None:
        """The highest score of all rounds; the cheaper on ties, then the one asked first."""
        return self._incumbent.answer

    def why_stopped(self) -> Stopped:
        """`no_gain`, or `dead_end` where nothing that fits could be added to what was kept."""
        if self._round:
            return "unfinished"
        return "no_gain" if self._flat else "dead_end"

    def _next_round(self) -> None:
        self._flat = not self._gained and self._params.on_no_gain == "stop"
        if self._flat:
            kept = []
        else:
            scored = [(combination, score) for combination, score in self._scores if score is not None]
            scored.sort(key=lambda pair: -pair[1])  # stable: ties stay in the order asked
            kept = [combination for combination, _ in scored[: self._params.width]]
        self._round, self._scores, self._gained = self._longer(kept), [], False

    def _longer(self, kept: list[Combination]) -> list[Combination]:
        """The kept combinations with one more chunk each, within the budget, none twice."""
        costs = self._candidates.costs
        longer: dict[Combination, None] = {}
        for combination in kept:
            room = self._budget_tokens - self._cost(combination)
            for number, cost in enumerate(costs):
                if number not in combination and cost <= room:
                    grown = (*combination, number)
                    longer[grown if self._candidates.order_matters else tuple(sorted(grown))] = None
        return list(longer)

    def _cost(self, combination: Combination) -> int:
        return sum(self._candidates.costs[number] for number in combination)
