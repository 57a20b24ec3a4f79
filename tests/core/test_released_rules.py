"""The `carrot` preset chooses what the authors' released code chooses, written out here from its rules alone.

Its rules: a walk from the root takes the child of highest UCB1 with the visits of its parent inside the logarithm, the
first of equals; all children within the budget are created at once and scored; each of them starts with one visit and
its own score, and hands its score and one visit to every ancestor; an iteration that ends at a node without room does
nothing; the answer is found by a depth-first scan for the highest (own score, visits, depth), the first of equals.
"""

import math
import random
from dataclasses import replace

from core.scoring import run

from corag_ray.core.policy_tree import PRESETS, PolicyTreeSearch
from corag_ray.core.strategy import Candidates


class Released:
    def __init__(self, sequence, own_score=None):
        self.sequence, self.own_score = sequence, own_score
        self.visits, self.total, self.children, self.is_full = 0, 0.0, [], False


def walk(root, costs, budget, c, penalty):
    """The nodes from the root to the end of the walk."""
    path = [root]
    while path[-1].children:
        best, best_ucb = None, None
        for child in path[-1].children:
            tokens = sum(costs[number] for number in child.sequence)
            ucb = child.total / child.visits + c * math.sqrt(math.log(path[-1].visits) / child.visits)
            ucb -= penalty * tokens / budget
            if best is None or ucb > best_ucb:
                best, best_ucb = child, ucb
        path.append(best)
    return path


def expand(node, costs, budget, score):
    node.is_full = True
    used = sum(costs[number] for number in node.sequence)
    for number, cost in enumerate(costs):
        if number not in node.sequence and used + cost <= budget:
            child = Released([*node.sequence, number])
            child.own_score = child.total = score(tuple(child.sequence))
            child.visits = 1
            node.children.append(child)


def scan(node, best=None):
    for child in node.children:
        key = (child.own_score, child.visits, len(child.sequence))
        if best is None or key > (best.own_score, best.visits, len(best.sequence)):
            best = child
        best = scan(child, best)
    return best


def released_choice(costs, budget, iterations, c, penalty, score):
    root = Released([])
    for _ in range(iterations):
        path = walk(root, costs, budget, c, penalty)
        if path[-1].is_full:
            continue
        expand(path[-1], costs, budget, score)
        for child in path[-1].children:
            for ancestor in path:
                ancestor.visits += 1
                ancestor.total += child.own_score
    chosen = scan(root)
    return None if chosen is None else (tuple(chosen.sequence), chosen.own_score)


def test_carrot_chooses_what_the_released_rules_choose_on_a_thousand_instances():
    depths = set()
    for seed in range(1000):
        rng = random.Random(seed)
        costs = tuple(rng.randint(1, 5) for _ in range(rng.randint(0, 7)))
        budget, steps = rng.randint(1, 16), rng.choice((2, 4, 8, 40))  # few steps make many ties
        scale = rng.choice((1.0, 8.0))  # 0..1, and as wide as logits

        def score(combination, seed=seed, steps=steps, scale=scale):
            return scale * random.Random(f"{seed} {combination}").randint(-steps, steps) / steps

        numbers = {"iterations": 10, "exploration": 2.4, "cost_weight": 0.1}
        if seed % 2:
            numbers = {"iterations": rng.randint(1, 30), "exploration": rng.choice((0.0, 0.3, 2.4, 9.0))}
            numbers["cost_weight"] = rng.choice((0.0, 0.1, 1.0))
        zeros = (0,) * len(costs)
        search = PolicyTreeSearch(
            Candidates(costs, tuple(map(float, zeros)), zeros, zeros), budget, replace(PRESETS["carrot"], **numbers)
        )
        run(search, score)
        expected = released_choice(
            costs, budget, numbers["iterations"], numbers["exploration"], numbers["cost_weight"], score
        )
        assert search.best() == expected
        depths.add(0 if expected is None else len(expected[0]))
    assert depths >= {0, 1, 2, 3, 4}
