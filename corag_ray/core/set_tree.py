"""A policy tree with one node for all orders of a set: who its nodes are, and which candidates to try next at each."""

from __future__ import annotations

from collections.abc import Iterable

from corag_ray.core.orders import in_order
from corag_ray.core.strategy import Candidates
from corag_ray.core.tree import Node
from corag_ray.types import Combination


class SetTree:
    """Sets of candidates within the budget; each hangs below the part of it that it was first made from.

    A set stands in candidate order where the score is blind to order, else in document order: documents by their best
    chunk's rank, chunks of one document as they stand in it. Other orders are leaves below it. A node is finished when
    nothing below it is left to be tried: no candidate fits, or all that do have been, and their nodes are finished.
    """

    def __init__(self, candidates: Candidates, budget_tokens: int) -> None:
        self.root = Node((), 0)
        self._candidates = candidates
        self._budget_tokens = budget_tokens
        self._by_cost = sorted(range(len(candidates)), key=lambda number: candidates.costs[number])
        self._nodes: dict[frozenset[int], Node] = {}
        self._orders: set[Combination] = set()
        self._finished: set[Combination] = set()
        self._tried: dict[Combination, dict[int, float | None]] = {}
        """By node, what each candidate tried there added to its score; None as long as that is not known."""

    def node_of(self, chunks: Iterable[int]) -> Node | None:
        """The node of a set, if it has been made; the empty set's is the root."""
        wanted = frozenset(chunks)
        return self._nodes.get(wanted) if wanted else self.root

    def add(self, chunks: Iterable[int], parent: Node) -> Node | None:
        """A new node below `parent`; None where the set has one, is empty, or exceeds the budget."""
        wanted = frozenset(chunks)
        cost = sum(self._candidates.costs[number] for number in wanted)
        if not wanted or wanted in self._nodes or cost > self._budget_tokens:
            return None
        node = Node(self._arranged(sorted(wanted)), cost, parent)
        self._nodes[wanted] = node
        parent.children.append(node)
        if not self._has_room(node):
            node.expanded = True
            self._finished.add(node.combination)
        return node

    def add_order(self, order: Combination, node: Node) -> Node | None:
        """A leaf for another order of a node's set; None for the node's own order and for one that has been made."""
        if order == node.combination or order in self._orders:
            return None
        self._orders.add(order)
        self._finished.add(order)
        leaf = Node(order, node.cost, node, expanded=True)
        node.children.append(leaf)
        return leaf

    def nodes(self) -> list[Node]:
        """All sets' nodes, in the order made."""
        return list(self._nodes.values())

    def widen(self, node: Node, width: int) -> list[Node]:
        """Try the next candidates at a node until so many new nodes are made or none is left; returns the new ones.

        A set that another part of it has led to before is no new node, but what the candidate adds is known with it.
        """
        tried = self._tried.setdefault(node.combination, {})
        made: list[Node] = []
        waiting = iter(self._in_promising_order(node))
        while len(made) < width and (number := next(waiting, None)) is not None:
            tried[number] = None
            child = self.add((*node.combination, number), node)
            if child is not None:
                made.append(child)
        node.expanded = next(waiting, None) is None
        return made

    def learn(self, node: Node) -> None:
        """Note what the candidates tried at a node added to its score, now that their sets have been told."""
        tried = self._tried.get(node.combination, {})
        for number, gain in tried.items():
            child = self._nodes[frozenset((*node.combination, number))]
            if gain is None and child.score is not None:
                tried[number] = child.score - (node.score or 0.0)
        self._finish(node)

    def width_of(self, node: Node) -> int:
        """How many candidates have been tried at a node."""
        return len(self._tried.get(node.combination, ()))

    def is_open(self, node: Node) -> bool:
        """Whether something below a scored node is left to be tried."""
        return not node.closed and node.combination not in self._finished

    def _in_promising_order(self, node: Node) -> list[int]:
        """The candidates that fit and have not been tried at a node, the most promising first.

        What a candidate added to a part of the node tells best what it will add to the whole: more than its single
        score does, and more than its similarity to the chosen chunks (docs/search.md). So each stands where its gain
        lay, between the least and the most of all gains there, at the nearest ancestor that it was tried at; never
        tried ones come last. Ties, and at the root all, stand by first-stage rank.
        """
        room = self._budget_tokens - node.cost
        tried = self._tried[node.combination]
        places: dict[int, float] = {}
        ancestor = node.parent
        while ancestor is not None:
            places = self._places_at(ancestor) | places
            ancestor = ancestor.parent
        fitting = [
            number
            for number, cost in enumerate(self._candidates.costs)
            if cost <= room and number not in tried and number not in node.combination
        ]
        return sorted(fitting, key=lambda number: -places.get(number, -1.0))  # stable

    def _places_at(self, node: Node) -> dict[int, float]:
        """By candidate tried at a node, where its gain lies between the least, 0, and the most, 1, of the gains there.

        Gains that are all alike place nobody above another, at 1.
        """
        gains = {number: gain for number, gain in self._tried.get(node.combination, {}).items() if gain is not None}
        least, most = min(gains.values(), default=0.0), max(gains.values(), default=0.0)
        return {number: (gain - least) / (most - least) if most > least else 1.0 for number, gain in gains.items()}

    def _finish(self, node: Node | None) -> None:
        while node is not None and node.expanded and not any(map(self.is_open, node.children)):
            self._finished.add(node.combination)
            node = node.parent

    def _has_room(self, node: Node) -> bool:
        room = self._budget_tokens - node.cost
        cheapest = next((number for number in self._by_cost if number not in node.combination), None)
        return cheapest is not None and self._candidates.costs[cheapest] <= room

    def _arranged(self, chunks: list[int]) -> Combination:
        if not self._candidates.order_matters:
            return tuple(chunks)
        return in_order("document", tuple(chunks), self._candidates)
