"""CORAG: the policy-tree search over ordered combinations, and its contested choices by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from corag_ray.core.strategy import Candidates, Reading, Stopped, told_of
from corag_ray.core.tree import Backup, Node, back_up, depth_first
from corag_ray.core.utility import utility
from corag_ray.errors import ConfigError, unknown_name
from corag_ray.types import Combination

TotalVisits = Literal["tree", "parent"]
Answer = Literal["utility", "utility_without_exploration", "mean_reward", "own_score"]
OverBudget = Literal["never_created", "ignored"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchParams:
    """The search's numbers, and every choice in which the paper's versions and its released code disagree.

    Attributes:
        iterations: expansions at most, the root's included.
        exploration: c of the utility.
        cost_weight: lambda of the utility.
        total_visits: N inside the logarithm: visits of all nodes of the tree, root included, or of the node's parent.
        backup: an expansion hands its ancestors the best child's reward, or every child's.
        answer: what the chosen combination is the highest in; `own_score` breaks ties by visits, then depth.
        reading: which of the reranker's two values is the reward.
        over_budget: `ignored` is what the released code does for five of its six rerankers: no budget is enforced and
            the answer can cost more than it. No preset uses it.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    iterations: int = 10
    exploration: float = 2.4
    cost_weight: float = 0.1
    total_visits: TotalVisits
    backup: Backup
    answer: Answer
    reading: Reading
    over_budget: OverBudget = "never_created"

    def __post_init__(self) -> None:
        """Refuse numbers and names that no search could run with."""
        if self.iterations < 1:
            raise ConfigError(f"iterations must be at least 1, not {self.iterations}.")
        for name, number in (("exploration", self.exploration), ("cost_weight", self.cost_weight)):
            if not (math.isfinite(number) and number >= 0):
                raise ConfigError(f"{name} must be a finite number of at least 0, not {number}.")
        choices = {"total_visits": TotalVisits, "backup": Backup, "answer": Answer, "reading": Reading}
        for name, known in {**choices, "over_budget": OverBudget}.items():
            if getattr(self, name) not in get_args(known):
                raise unknown_name(name, str(getattr(self, name)), get_args(known))


# The published numbers (c 2.4, 10 iterations, lambda 0.1) are SearchParams' defaults.
PRESETS: Mapping[str, SearchParams] = {
    "seed": SearchParams(total_visits="tree", backup="best_child", answer="utility", reading="raw"),
    "report": SearchParams(total_visits="tree", backup="best_child", answer="mean_reward", reading="raw"),
    # The released code enforces its budget for only one of its six rerankers, the one that gets a tokenizer; this is
    # what it does for that one, but where nothing fits it falls back to over-budget nodes, and here there is no answer.
    "carrot": SearchParams(total_visits="parent", backup="every_child", answer="own_score", reading="raw"),
}


class PolicyTreeSearch:
    """Expands, each iteration, the node that a walk by highest utility from the empty root leads to.

    All children of a node within the budget are scored as one expansion and backed up once, when the last of them has
    been told; so `ask`'s limit cuts an expansion into parts without changing the tree. First maximum wins everywhere,
    children in candidate order. A node told `None` is closed and counts no visit, anywhere.
    """

    def __init__(self, candidates: Candidates, budget_tokens: int, params: SearchParams) -> None:
        self.reading: Reading = params.reading
        self.root = Node((), 0)
        self._candidates = candidates
        self._budget_tokens = budget_tokens
        self._params = params
        self._iterations_left = params.iterations
        self._tree_visits = 0  # kept as a running sum: the tree is never rescanned for it
        self._leaf = self.root  # the node under expansion; the first `_told` of its children are told
        self._told = 0
        self._asked: list[Node] = []

    def ask(self, limit: int) -> list[Combination]:
        """The children still to be scored of the node under expansion; when all are told, of the next node."""
        if self._told == len(self._leaf.children):
            self._begin_expansion()
        self._asked = self._leaf.children[self._told : self._told + limit]
        return [node.combination for node in self._asked]

    def tell(self, scores: Mapping[Combination, float | None]) -> None:
        """Give the last ask's scores; of its first few only when the search ends there or goes on asking from there."""
        told = self._asked[: len(told_of([node.combination for node in self._asked], scores))]
        for node in told:
            node.record(scores[node.combination])
            self._tree_visits += node.visits
        self._asked = self._asked[len(told) :]
        self._told += len(told)
        if told and self._told == len(self._leaf.children):
            self._tree_visits += back_up(self._leaf, self._params.backup)

    def best(self) -> tuple[Combination, float] | None:
        """The answer over the whole tree, not its leaves alone, and its own score; the empty root is never one."""
        scored = ((node, node.score) for node in depth_first(self.root) if node.score is not None)
        node, score = max(scored, key=self._answer_key, default=(None, 0.0))
        return None if node is None else (node.combination, score)

    def why_stopped(self) -> Stopped:
        """`iterations`, or `dead_end` where the next walk ends at a node to which no child can be added."""
        if self._iterations_left or self._told < len(self._leaf.children):
            return "unfinished"
        expansions = sum(1 for node in depth_first(self.root) if node.children)
        return "iterations" if expansions == self._params.iterations else "dead_end"

    def _begin_expansion(self) -> None:
        if self._iterations_left == 0:
            return
        leaf = self._walk()
        if not leaf.expanded:
            leaf.children = self._children(leaf)
            leaf.expanded = True
            self._leaf, self._told = leaf, 0
        # An iteration that creates no child changes no visit and no reward, so every later walk would end at the same
        # node and do nothing again: the search is finished, however many iterations are left.
        fruitful = self._told < len(self._leaf.children)
        self._iterations_left = self._iterations_left - 1 if fruitful else 0

    def _walk(self) -> Node:
        node = self.root
        while node.expanded:
            walkable = [child for child in node.children if not child.closed]
            if not walkable:
                break
            node = max(walkable, key=self._utility)
        return node

    def _children(self, node: Node) -> list[Node]:
        # Ordered tuples even where the score is blind to order (`order_matters`): the presets search as published.
        used = set(node.combination)
        room = self._budget_tokens - node.cost if self._params.over_budget == "never_created" else math.inf
        return [
            Node((*node.combination, number), node.cost + cost, node)
            for number, cost in enumerate(self._candidates.costs)
            if number not in used and cost <= room
        ]

    def _utility(self, node: Node, explore: bool = True) -> float:
        total_visits = self._tree_visits
        if self._params.total_visits == "parent" and node.parent is not None:
            total_visits = node.parent.visits
        return utility(
            reward_sum=node.reward_sum,
            visits=node.visits,
            total_visits=total_visits,
            cost=node.cost,
            budget_tokens=self._budget_tokens,
            exploration=self._params.exploration if explore else 0.0,
            cost_weight=self._params.cost_weight,
        )

    def _answer_key(self, scored: tuple[Node, float]) -> tuple[float, ...]:
        node, score = scored
        match self._params.answer:
            case "own_score":
                return (score, node.visits, len(node.combination))
            case "mean_reward":
                return (node.reward_sum / node.visits,)
            case "utility":
                return (self._utility(node),)
            case "utility_without_exploration":
                return (self._utility(node, explore=False),)
