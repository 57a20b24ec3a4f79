"""Where an explanation's nodes stand on its page: columns by depth, the heaviest nodes shown, the others counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from corag_ray.core.strategy import Reading
from corag_ray.reports.explanation import ExplainedNode

SHOWN_NODES = 48
"""So many a person can look over; a tree of 60 candidates has some 600."""
SHOWN_CHILDREN = 10
"""Of one node, so that the heaviest does not take all the room."""
LEAST_IN_A_COLUMN = 4
_Unplaced = tuple[tuple[int, ...], bool, int | None, int]
"""All of a spot but its row."""


@dataclass(frozen=True, slots=True)
class Spot:
    """One place of the map: a node, or the children of a node that are not shown.

    Attributes:
        nodes: places in the explanation of the one node, or of those not shown.
        is_fold: whether it stands for nodes that are not shown.
        parent: place among the spots; None without one. It stands before its children.
        column: from 0.
        row: from 0; of a parent the middle of its children's rows.
    """

    nodes: tuple[int, ...]
    is_fold: bool
    parent: int | None
    column: int
    row: float


def value_of(node: ExplainedNode, reading: Reading | None) -> float | None:
    """The score as the search was told it."""
    return node.calibrated if reading == "calibrated" else node.raw


def path_to(nodes: Sequence[ExplainedNode], place: int | None) -> list[int]:
    """The places from a root to a node, both included; `[]` for None."""
    path: list[int] = []
    while place is not None:
        path.append(place)
        place = nodes[place].parent
    return path[::-1]


def tree_spots(
    nodes: Sequence[ExplainedNode], reading: Reading | None, kept: Collection[int], limit: int = SHOWN_NODES
) -> list[Spot]:
    """The spots of a tree, parents before children, heaviest children first, a fold behind them.

    Shown are the nodes `kept` and then the heaviest: those with most visits, then of the highest score, then the
    earliest; each below a node that is shown, ten of one node's children and `limit` nodes in all, or as many as are
    kept.
    """
    ranked = _heaviest_first(range(len(nodes)), nodes, reading)
    children: defaultdict[int | None, list[int]] = defaultdict(list)
    for place in ranked:
        children[nodes[place].parent].append(place)
    shown = {above for place in kept for above in path_to(nodes, place)}
    grown = Counter(nodes[place].parent for place in shown)
    for place in ranked:
        parent = nodes[place].parent
        fits = len(shown) < limit and grown[parent] < SHOWN_CHILDREN and (parent is None or parent in shown)
        if fits and place not in shown:
            shown.add(place)
            grown[parent] += 1
    return _placed(children, shown)


def list_spots(
    nodes: Sequence[ExplainedNode], reading: Reading | None, kept: Collection[int], limit: int = SHOWN_NODES
) -> list[Spot]:
    """The spots of what a search without a tree asked for: a column for each number of chunks, best first.

    Each column shows its share of `limit`, at least four, the `kept` among them, and then a fold of its others.
    """
    columns: defaultdict[int, list[int]] = defaultdict(list)
    for place in _heaviest_first(range(len(nodes)), nodes, reading):
        columns[len(nodes[place].combination)].append(place)
    share = max(LEAST_IN_A_COLUMN, limit // max(1, len(columns)))
    spots: list[Spot] = []
    for column, (_, places) in enumerate(sorted(columns.items())):
        kept_here = [place for place in places if place in kept]
        others = [place for place in places if place not in kept]
        shown = {*kept_here, *others[: max(0, share - len(kept_here))]}
        spots += [Spot((place,), False, None, column, row) for row, place in enumerate(p for p in places if p in shown)]
        if hidden := tuple(place for place in places if place not in shown):
            spots.append(Spot(hidden, True, None, column, len(shown)))
    return spots


def _heaviest_first(places: Iterable[int], nodes: Sequence[ExplainedNode], reading: Reading | None) -> list[int]:
    def lightness(place: int) -> tuple[int, float, int]:
        value = value_of(nodes[place], reading)
        return -(nodes[place].visits or 0), float("inf") if value is None else -value, place

    return sorted(places, key=lightness)


def _placed(children: Mapping[int | None, Sequence[int]], shown: Collection[int]) -> list[Spot]:
    """Spots in the order of a walk through the shown nodes; a leaf takes the next row."""
    found: list[_Unplaced] = []
    waiting = _below(None, None, 0, children, shown)[::-1]
    while waiting:
        nodes, is_fold, above, column = waiting.pop()
        found.append((nodes, is_fold, above, column))
        if not is_fold:
            waiting += _below(nodes[0], len(found) - 1, column + 1, children, shown)[::-1]
    inner: defaultdict[int, list[int]] = defaultdict(list)
    for own, (*_, above, _) in enumerate(found):
        if above is not None:
            inner[above].append(own)
    leaves = (own for own in range(len(found)) if own not in inner)
    rows = {own: float(row) for row, own in enumerate(leaves)}
    for own in sorted(inner, reverse=True):  # what is below has its row before
        rows[own] = (rows[inner[own][0]] + rows[inner[own][-1]]) / 2
    return [Spot(*spot, rows[own]) for own, spot in enumerate(found)]


def _below(
    node: int | None,
    spot: int | None,
    column: int,
    children: Mapping[int | None, Sequence[int]],
    shown: Collection[int],
) -> list[_Unplaced]:
    """A node's shown children and its fold, as spots without rows."""
    places = children.get(node, ())
    spots: list[_Unplaced] = [((place,), False, spot, column) for place in places if place in shown]
    hidden = tuple(place for place in places if place not in shown)
    return [*spots, (hidden, True, spot, column)] if hidden else spots
