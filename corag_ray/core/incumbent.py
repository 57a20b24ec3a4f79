"""The best combination seen so far."""

from __future__ import annotations

from corag_ray.types import Combination


class Incumbent:
    """Highest score; the cheaper on ties, then the one offered first."""

    def __init__(self) -> None:
        self.answer: tuple[Combination, float] | None = None
        self._key = (float("-inf"), 0)

    def offer(self, combination: Combination, score: float | None, cost: int) -> bool:
        """Consider a scored combination; True if it scores higher than all before it."""
        if score is None:
            return False
        better = self.answer is None or score > self.answer[1]
        if self.answer is None or (score, -cost) > self._key:
            self.answer, self._key = (combination, score), (score, -cost)
        return better
