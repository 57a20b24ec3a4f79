"""What a search went through, as values: its nodes, what the budget forbade, why it stopped and what it chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corag_ray.core.strategy import Candidates, Reading, Stopped, Strategy
from corag_ray.core.tree import Node, depth_first
from corag_ray.types import Combination, Score

Asked = Mapping[Combination, Score | None]
"""What a search asked for, in its order, with both values of each answer; `None` where it could not be scored."""


@dataclass(frozen=True, slots=True)
class TracedNode:
    """One combination that the search looked at.

    Attributes:
        combination: candidate numbers in their order; `()` at the root of a tree.
        cost: tokens of the combination.
        parent: place among the trace's nodes of the node that it was made from; None at a root and outside a tree.
        asked: its place among the search's pairs, from 1; None where no score was asked for.
        score: both values; None at a root, where it was not asked for, and where it could not be scored.
        visits: N(v); None outside a tree.
        mean_reward: V(v) / N(v); None without a visit.
        forbidden: the candidates that the budget kept from becoming children; None where none were to be made.
    """

    combination: Combination
    cost: int
    parent: int | None
    asked: int | None
    score: Score | None
    visits: int | None = None
    mean_reward: float | None = None
    forbidden: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """A search from outside.

    Attributes:
        nodes: of a tree, parents before their children and these in the tree's order; else as asked.
        is_tree: whether the nodes have parents and visits: the search keeps a tree of `core.tree.Node`s.
        best: the chosen combination and the score that the search gives for it.
        stopped: why it asked for nothing more.
        reading: which of the two values it was told.
        candidates: all that it saw of the chunks.
        budget_tokens: what a combination may cost.
    """

    nodes: tuple[TracedNode, ...]
    is_tree: bool
    best: tuple[Combination, float] | None
    stopped: Stopped
    reading: Reading
    candidates: Candidates
    budget_tokens: int


def trace(search: Strategy, candidates: Candidates, budget_tokens: int, asked: Asked) -> Trace:
    """What a search has gone through so far.

    Args:
        search: any strategy; one whose attribute `root` is a `Node` is shown as a tree.
        candidates: those that it was made with.
        budget_tokens: that it was made with.
        asked: what it asked for and was told.
    """
    root = getattr(search, "root", None)
    is_tree = isinstance(root, Node)
    scored = {combination: (place, score) for place, (combination, score) in enumerate(asked.items(), start=1)}
    nodes = _of_tree(root, scored, candidates.costs, budget_tokens) if isinstance(root, Node) else {}
    for combination, (place, score) in scored.items():
        if combination not in nodes:
            cost = sum(candidates.costs[number] for number in combination)
            nodes[combination] = TracedNode(combination, cost, None, place, score)
    return Trace(
        nodes=tuple(nodes.values()),
        is_tree=is_tree,
        best=search.best(),
        stopped=search.why_stopped(),
        reading=search.reading,
        candidates=candidates,
        budget_tokens=budget_tokens,
    )


def _of_tree(
    root: Node, scored: Mapping[Combination, tuple[int, Score | None]], costs: Sequence[int], budget_tokens: int
) -> dict[Combination, TracedNode]:
    """The nodes under and including `root` by combination; one that is reached twice stands where it is first."""
    places: dict[Combination, int] = {}
    nodes: dict[Combination, TracedNode] = {}
    for node in depth_first(root):
        if node.combination in nodes:
            continue
        places[node.combination] = len(nodes)
        asked, score = scored.get(node.combination, (None, None))
        nodes[node.combination] = TracedNode(
            combination=node.combination,
            cost=node.cost,
            parent=None if node.parent is None else places.get(node.parent.combination),
            asked=asked,
            score=score,
            visits=node.visits,
            mean_reward=node.reward_sum / node.visits if node.visits else None,
            forbidden=_forbidden(node, costs, budget_tokens) if node.expanded else None,
        )
    return nodes


def _forbidden(node: Node, costs: Sequence[int], budget_tokens: int) -> tuple[int, ...]:
    """The candidates that are in no child of an expanded node because the room that it leaves is too small for them."""
    held = set(node.combination).union(*(child.combination for child in node.children))
    room = budget_tokens - node.cost
    return tuple(number for number, cost in enumerate(costs) if number not in held and cost > room)
