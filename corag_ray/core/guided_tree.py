"""CORAG, ours: a policy tree over sets that scores the promising first, so that a tenth of the pairs is enough."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from corag_ray.core.set_tree import SetTree
from corag_ray.core.standing import spread, worths
from corag_ray.core.strategy import Candidates, Reading, Stopped, check_reading, told_of
from corag_ray.core.tree import Node, credit
from corag_ray.core.utility import utility
from corag_ray.errors import ConfigError
from corag_ray.types import Combination

PERMUTED = 3
"""Chunks of a combination up to which all its orders are tried at once; of a longer one, exchanges of neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidedParams:
    """The search's numbers, chosen by measurement (docs/search.md); weights count in spreads of the first scores.

    A spread is the standard deviation of the first single scores: so the weights mean the same whatever the reranker's
    scale is.

    Attributes:
        pairs: combinations scored, at most.
        singles: candidates scored alone before anything else, by first-stage rank.
        width: candidates tried at a node at a time; where it has been visited N times, up to `width * sqrt(N)`.
        exploration: c of the utility.
        cost_weight: lambda: what a combination that fills the budget loses.
        worth_weight: what a combination gains by each chunk, times the chunk's worth in 0..1 (`standing.worths`).
        swaps: of how many chunks of the best combination so far, those least missed, it is tried to take others.
        reading: which of the reranker's two values is searched. Raw by default: calibrated ones crowd near 0 and 1.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    pairs: int = 210
    singles: int = 16
    width: int = 8
    exploration: float = 0.0
    cost_weight: float = 0.2
    worth_weight: float = 0.08
    swaps: int = 2
    reading: Reading = "raw"

    def __post_init__(self) -> None:
        """Refuse numbers and names that no search could run with."""
        for name, least in (("pairs", 1), ("singles", 1), ("width", 1), ("swaps", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, not {getattr(self, name)}.")
        for name in ("exploration", "cost_weight", "worth_weight"):
            number = getattr(self, name)
            if not (math.isfinite(number) and number >= 0):
                raise ConfigError(f"{name} must be a finite number of at least 0, not {number}.")
        check_reading(self.reading)


class GuidedTreeSearch:
    """Chooses the combination of highest value: its score, plus its chunks' worth, minus its cost.

    First the first singles, then a greedy path: the best child's best child and so on, as long as the value rises. Then
    moves around the best combination so far, whenever there is a new one: each chunk is left out; others are tried in
    place of those least missed; where the score sees order, other orders. Between these, as in the paper, iterations
    that walk from the root by highest utility and widen the node that they end at. Without any limit all sets are
    scored, and then, where the score sees order, all their orders.

    A round is one kind of step; it is planned only when the last one has been told, so `ask`'s limit changes nothing.
    """

    def __init__(self, candidates: Candidates, budget_tokens: int, params: GuidedParams) -> None:
        self.reading: Reading = params.reading
        self._candidates = candidates
        self._budget_tokens = budget_tokens
        self._params = params
        self._tree = SetTree(candidates, budget_tokens)
        self.root = self._tree.root
        self._spread = 0.0
        self._worths: dict[int, float] = {}
        self._best: Node | None = None
        self._round: list[Node] = []  # the first `_told` of them are told
        self._told = 0
        self._asked: list[Node] = []
        self._pairs_left = params.pairs
        self._ended = False
        self._widened: Node | None = None  # the node whose new children the round is
        self._path: Node | None = self.root  # the end of the greedy path, as long as it grows
        self._moves: deque[tuple[Callable[[Node], list[Node]], Node]] = deque()
        self._moved: Node | None = None  # the combination that the moves are around
        self._last_orders: Iterator[Node] | None = None

    def ask(self, limit: int) -> list[Combination]:
        """The combinations of the round that are not told yet; when all are, those of the next round."""
        if self._told == len(self._round):
            self._round, self._told = self._next_round(), 0
        self._asked = self._round[self._told :][: min(limit, self._pairs_left)]
        self._ended = not self._asked
        return [node.combination for node in self._asked]

    def tell(self, scores: Mapping[Combination, float | None]) -> None:
        """Give the last ask's scores; of its first few only when the search ends there or goes on asking from there."""
        told = self._asked[: len(told_of([node.combination for node in self._asked], scores))]
        for node in told:
            node.record(scores[node.combination])
            self._offer(node)
        self._asked = self._asked[len(told) :]
        self._told += len(told)
        self._pairs_left -= len(told)
        if told and self._told == len(self._round):
            self._learn(self._round)

    def best(self) -> tuple[Combination, float] | None:
        """The combination of highest value and its score; the cheaper on ties, then the one asked first."""
        return None if self._best is None or self._best.score is None else (self._best.combination, self._best.score)

    def why_stopped(self) -> Stopped:
        """`pairs`, or `all_scored` where nothing was left before they were used up."""
        if not self._ended:
            return "unfinished"
        return "all_scored" if self._pairs_left else "pairs"

    def _offer(self, node: Node) -> None:
        if not node.closed and (self._best is None or self._key(node) > self._key(self._best)):
            self._best = node

    def _key(self, node: Node) -> tuple[float, int]:
        return self._value(node), -node.cost

    def _value(self, node: Node) -> float:
        """The score of a scored node, its worth and its cost; the score alone as long as the spread is not known."""
        worth = sum(self._worths.get(number, 0.0) for number in node.combination)
        cost_share = node.cost / self._budget_tokens
        weighed = self._params.worth_weight * worth - self._params.cost_weight * cost_share
        return (node.score or 0.0) + self._spread * weighed

    def _learn(self, made: Sequence[Node]) -> None:
        """Draw conclusions from what a step made, which has been told as a whole; it may be nothing."""
        if self._widened is not None:
            self._tree.learn(self._widened)
            if not self._worths:
                self._judge_singles()
            rewards = [node.score for node in made if node.score is not None]
            credit(self._widened, [max(rewards)] if rewards else [])
        if self._path is not None:
            self._lengthen_path(self._path)
        self._widened = None

    def _judge_singles(self) -> None:
        """From the first singles: the spread of scores and each one's worth; what was best so far is judged anew."""
        singles = [(node, node.score) for node in self.root.children if node.score is not None]
        scores = [score for _, score in singles]
        numbers = [node.combination[0] for node, _ in singles]
        self._spread = spread(scores)
        priors = [self._candidates.priors[number] for number in numbers]
        self._worths = dict(zip(numbers, worths(scores, priors), strict=True))
        for node, _ in singles:
            self._offer(node)

    def _lengthen_path(self, end: Node) -> None:
        """Go on to the best child, if that is better than its parent; the empty root is worse than any."""
        scored = [child for child in end.children if child.score is not None]
        best = max(scored, key=self._key, default=None)
        rises = best is not None and (end is self.root or self._value(best) > self._value(end))
        self._path = best if rises else None

    def _next_round(self) -> list[Node]:
        """The nodes of the next step that makes any; `[]` when there is nothing left to score, or no pair left."""
        while self._pairs_left:
            if self._path is not None:
                made = self._widen(self._path)
                self._path = self._path if made else None
            elif self._best is not None and self._best is not self._moved:
                self._moved = self._best
                self._moves = deque(self._moves_around(self._best))
                continue
            elif self._moves:
                move, node = self._moves.popleft()
                made = move(node)
            elif (leaf := self._walk()) is not None:
                made = self._widen(leaf)
            else:
                return self._next_orders()
            if made:
                return made
            self._learn([])
        return []

    def _widen(self, node: Node) -> list[Node]:
        self._widened = node
        singles = node is self.root and not node.children
        return self._tree.widen(node, self._params.singles if singles else self._params.width)

    def _moves_around(self, best: Node) -> Iterator[tuple[Callable[[Node], list[Node]], Node]]:
        """The moves around the best combination; around its set's node, where the best is another order of that."""
        whole = self._tree.node_of(best.combination) or best
        if len(whole.combination) > 1:
            yield self._leave_out, whole
            yield self._swap, whole
        if self._candidates.order_matters:
            yield self._reorder, best

    def _leave_out(self, node: Node) -> list[Node]:
        """Each chunk left out in turn; such a part hangs below a part of its own."""
        made = [self._tree.add(part, self._part_of(part)) for part in _parts(node.combination)]
        return [part for part in made if part is not None]

    def _swap(self, node: Node) -> list[Node]:
        """Plan to widen the parts that miss their chunk least; nothing is made yet."""
        parts = [self._tree.node_of(part) for part in _parts(node.combination)]
        scored = [part for part in parts if part is not None and part.score is not None]
        scored.sort(key=lambda part: -(part.score or 0.0))  # stable
        self._moves.extendleft((self._widen, part) for part in reversed(scored[: self._params.swaps]))
        return []

    def _reorder(self, node: Node) -> list[Node]:
        """Other orders of a node's chunks."""
        whole = self._tree.node_of(node.combination) or node
        made = [self._tree.add_order(order, whole) for order in _orders_near(node.combination)]
        return [leaf for leaf in made if leaf is not None]

    def _part_of(self, chunks: Combination) -> Node:
        """The node of one chunk less, the first there is; else the root."""
        smaller = (self._tree.node_of(part) for part in _parts(chunks))
        return next((node for node in smaller if node is not None), self.root)

    def _walk(self) -> Node | None:
        """From the root by highest utility to a node that is narrower than its visits allow; None if all is finished.

        A node that is wide enough, but has no child with anything left below it, is widened all the same.
        """
        node = self.root
        if not self._tree.is_open(node):
            return None
        while True:
            width = self._params.singles if node is self.root else self._params.width
            is_wide = node.expanded or self._tree.width_of(node) >= width * math.sqrt(max(node.visits, 1))
            open_children = [child for child in node.children if self._tree.is_open(child)] if is_wide else []
            if not open_children:
                return node
            visits = node.visits
            node = max(open_children, key=lambda child: self._utility(child, visits))

    def _utility(self, node: Node, parent_visits: int) -> float:
        return utility(
            reward_sum=node.reward_sum,
            visits=node.visits,
            total_visits=parent_visits,
            cost=node.cost,
            budget_tokens=self._budget_tokens,
            exploration=self._params.exploration * self._spread,
            cost_weight=self._params.cost_weight * self._spread,
        )

    def _next_orders(self) -> list[Node]:
        """When every set has been scored, and the score sees order: further orders, those of the best sets first."""
        if self._last_orders is None:
            self._last_orders = self._all_orders() if self._candidates.order_matters else iter(())
        return list(itertools.islice(self._last_orders, self._params.width))

    def _all_orders(self) -> Iterator[Node]:
        scored = [node for node in self._tree.nodes() if node.score is not None]
        for node in sorted(scored, key=lambda node: -self._value(node)):
            for order in itertools.permutations(node.combination):
                if (leaf := self._tree.add_order(order, node)) is not None:
                    yield leaf


def _parts(combination: Combination) -> list[Combination]:
    """The combination without its first chunk, without its second, and so on."""
    return [combination[:place] + combination[place + 1 :] for place in range(len(combination))]


def _orders_near(combination: Combination) -> Sequence[Combination]:
    """All orders of a few chunks; of more, those with two neighbours exchanged."""
    if len(combination) <= PERMUTED:
        return list(itertools.permutations(combination))
    places = range(len(combination) - 1)
    return [(*combination[:n], combination[n + 1], combination[n], *combination[n + 2 :]) for n in places]
