"""The node utility that steers the policy-tree search."""

from __future__ import annotations

import math


def utility(
    *,
    reward_sum: float,
    visits: int,
    total_visits: int,
    cost: int,
    budget_tokens: int,
    exploration: float,
    cost_weight: float,
) -> float:
    """U(v) = V(v) / N(v) + c * sqrt(ln N / N(v)) - lambda * cost(v) / B.

    Source: CORAG, arXiv 2411.00744v1, Definition 4.2. Which visits the N inside the logarithm counts is contested
    (`SearchParams.total_visits`), so the caller passes it.

    Args:
        reward_sum: V(v), the rewards backed up through the node, its own included.
        visits: N(v), at least 1. A node without visits has no mean: every scored node is born with one visit and an
            unscored one is never compared, so 0 cannot occur, and is a ZeroDivisionError if it does.
        total_visits: N. At 1 there is nothing to explore, ln 1 = 0. A search cut inside its very first expansion has
            N(root) = 0, where no logarithm exists; it counts as 1.
        cost: tokens of the node's whole combination.
        budget_tokens: B. A budget below 1 counts as 1: nothing fits it, so only a search that ignores its budget ever
            divides by it, and it then still orders nodes by cost instead of dividing by zero.
        exploration: c, at least 0.
        cost_weight: lambda, at least 0.
    """
    explore = exploration * math.sqrt(math.log(max(total_visits, 1)) / visits)
    return reward_sum / visits + explore - cost_weight * cost / max(budget_tokens, 1)
