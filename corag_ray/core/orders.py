"""The order of a chosen combination: a step of its own, after the search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from corag_ray.core.strategy import Candidates
from corag_ray.types import Combination

Order = Literal["chosen", "rank", "document", "ends_first", "random"]


def in_order(order: Order, combination: Combination, candidates: Candidates) -> Combination:
    """The same chunks in the named order.

    `chosen`: as the strategy left them. `rank`: by first-stage rank. `document`: documents by their best chunk's rank,
    chunks of one document as they stand in it. `ends_first`: the best-ranked at the beginning and at the end, the worst
    in the middle, where models read least well (Liu et al., "Lost in the Middle", TACL 2024). `random`: a draw that
    depends on the chosen set and the candidates alone.
    """
    return _ORDERS[order](combination, candidates)


def _by_document(combination: Combination, candidates: Candidates) -> Combination:
    best_rank: dict[int, int] = {}
    for number in sorted(combination):
        best_rank.setdefault(candidates.documents[number], number)
    return tuple(sorted(combination, key=lambda n: (best_rank[candidates.documents[n]], candidates.positions[n], n)))


def _ends_first(combination: Combination, candidates: Candidates) -> Combination:
    ranked = sorted(combination)
    return (*ranked[0::2], *reversed(ranked[1::2]))


def _at_random(combination: Combination, candidates: Candidates) -> Combination:
    drawn = sorted(combination)
    candidates.draw(f"order {drawn}").shuffle(drawn)
    return tuple(drawn)


_ORDERS: Mapping[Order, Callable[[Combination, Candidates], Combination]] = {
    "chosen": lambda combination, candidates: combination,
    "rank": lambda combination, candidates: tuple(sorted(combination)),
    "document": _by_document,
    "ends_first": _ends_first,
    "random": _at_random,
}
