"""What a strategy sees of a query, and how it asks for scores without calling anything."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from corag_ray.errors import ProtocolError, unknown_name
from corag_ray.types import Combination

Reading = Literal["raw", "calibrated"]
"""Which of a reranker's two values a strategy is told."""
Stopped = Literal["all_scored", "iterations", "pairs", "dead_end", "no_gain", "unfinished"]
"""Why a search asks for nothing more.

`all_scored`: whatever the strategy would have scored is. `iterations`: it has made as many expansions as it may.
`pairs`: it has had as many combinations scored as it may. `dead_end`: to what it would go on from nothing can be added
that fits and has a score. `no_gain`: the last round brought nothing better. `unfinished`: it would ask on; a limit of
pairs from outside or a deadline ended it.
"""


def check_reading(reading: str) -> None:
    """Refuse a reading that no reranker has.

    Raises:
        ConfigError: the name is unknown.
    """
    if reading not in get_args(Reading):
        raise unknown_name("reading", str(reading), get_args(Reading))


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of one query, numbered 0..k-1 by first-stage rank: all that a strategy ever sees.

    Attributes:
        costs: [k] generator tokens of each candidate as the prompt renders it; at least 1.
        priors: [k] first-stage score, not increasing.
        documents: [k] number of the candidate's document; equal numbers mean the same document.
        positions: [k] place of the candidate within its document.
        similarity: [k][k] cosine of the candidates' vectors; `()` unless the strategy needs it.
        order_matters: whether the reranker sees order. Where it does not, the strategies of ours that have combinations
            scored search sets and write one in candidate order; the paper's presets search ordered tuples all the same,
            as published, and those that score singles alone leave the chunks in the order chosen.
    """

    costs: tuple[int, ...]
    priors: tuple[float, ...]
    documents: tuple[int, ...]
    positions: tuple[int, ...]
    similarity: tuple[tuple[float, ...], ...] = ()
    order_matters: bool = True

    def __len__(self) -> int:
        """Number of candidates, k."""
        return len(self.costs)

    def draw(self, purpose: str) -> random.Random:
        """A generator of random numbers for one purpose: the same for the same candidates, on every machine.

        It is seeded by the candidates' whole numbers: costs alone are often equal, as chunks are of one size, and a
        first-stage score may differ in its last bits. A string seeds alike in every process; a hash would not.
        """
        return random.Random(f"{purpose} {self.costs} {self.documents} {self.positions}")


class Strategy(Protocol):
    """One way to choose a combination within a budget.

    A strategy is a pure function of what it was told: the same tells give the same asks, whatever the time or company.
    One whose parameters declare `needs_similarity` reads `Candidates.similarity`; for all others it is left out.
    """

    reading: Reading

    def ask(self, limit: int) -> list[Combination]:
        """The next combinations to score, at most `limit` (>= 1) of them; `[]` means finished.

        Asking twice without telling gives the same answer.
        """
        ...

    def tell(self, scores: Mapping[Combination, float | None]) -> None:
        """Give the scores of the last ask. `None`: it could not be scored; it is never chosen and brings no reward."""
        ...

    def best(self) -> tuple[Combination, float] | None:
        """The chosen combination and its score; `None` when nothing that fits has a score."""
        ...

    def why_stopped(self) -> Stopped:
        """Why `ask` gave `[]`; `unfinished` until it has. Nothing changes by it."""
        ...


def told_of(asked: list[Combination], scores: Mapping[Combination, float | None]) -> list[Combination]:
    """The asked combinations that `scores` tells: its first few, in order.

    Raises:
        ProtocolError: the scores are of others.
    """
    told = asked[: len(scores)]
    if len(told) < len(scores) or any(combination not in scores for combination in told):
        raise ProtocolError(f"tell expects scores of {asked}, or of the first few of them, not of {list(scores)}.")
    return told
