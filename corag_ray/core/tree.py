"""Policy-tree nodes, the back-up of rewards, and the depth-first scan; all by iteration, since trees get deep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from corag_ray.types import Combination

Backup = Literal["best_child", "every_child"]
"""Whose reward an expansion hands to the ancestors."""


@dataclass(slots=True, eq=False)
class Node:
    """One ordered combination and what the search knows of it; mutable, and equal only to itself.

    Attributes:
        combination: the candidates chosen so far; `()` at the root.
        cost: tokens of the combination.
        parent: what it was made from: the combination without its last candidate, or, where a node stands for a set
            (`set_tree.SetTree`), a part of it or another order of it; `None` at the root.
        score: own score; `None` at the root, before it is told, and for a closed node.
        visits: N(v). A scored node is born with 1; the root and a closed node with 0.
        reward_sum: V(v), own score included.
        children: one a remaining candidate, in candidate order, or those of a set in the order made; those over the
            budget were never created.
        expanded: all its children have been created (there may be none).
        closed: it could not be scored: never walked into, never chosen, and no visit counted.
    """

    combination: Combination
    cost: int
    parent: Node | None = field(default=None, repr=False)
    score: float | None = None
    visits: int = 0
    reward_sum: float = 0.0
    children: list[Node] = field(default_factory=list, repr=False)
    expanded: bool = False
    closed: bool = False

    def record(self, score: float | None) -> None:
        """Take the node's own score as its first reward, or close it when there is none."""
        if score is None:
            self.closed = True
            return
        self.score = score
        self.reward_sum = score
        self.visits = 1


def back_up(parent: Node, backup: Backup) -> int:
    """Hand the scores of a fully told expansion to `parent` and all its ancestors, the root included.

    `every_child` adds each scored child's reward and one visit; `best_child` only the highest reward and one visit.
    An expansion without a scored child adds nothing.

    Returns:
        How many visits were added to the tree, the children's own not counted.
    """
    rewards = [child.score for child in parent.children if child.score is not None]
    if backup == "best_child" and rewards:
        rewards = [max(rewards)]
    return credit(parent, rewards)


def credit(node: Node, rewards: Sequence[float]) -> int:
    """Add rewards, and a visit for each, to a node and all its ancestors; returns how many visits were added."""
    added = 0
    ancestor: Node | None = node
    while ancestor is not None:
        # One by one and not sum(rewards): the released code adds in this order, and rounding may decide a tie.
        for reward in rewards:
            ancestor.reward_sum += reward
        ancestor.visits += len(rewards)
        added += len(rewards)
        ancestor = ancestor.parent
    return added


def depth_first(root: Node) -> Iterator[Node]:
    """Every node under and including `root`: a parent before its children, children in candidate order."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))
