"""The check of determinism: a few hundred of its cases, and what it sees of a search that depends on more."""

import random
from dataclasses import replace

from corag_ray.core.policy_tree import PRESETS, PolicyTreeSearch
from jobs.check_search import Case, checked, drawn


def test_the_same_tree_alone_asynchronously_with_other_limits_and_in_any_company():
    told = checked([drawn(n, random.Random(f"test {n}")) for n in range(400)], random.Random(0))
    assert told.pop("nodes") > 3000
    assert told == {
        "cases": 400,
        "wrong_nodes": 0,
        "differ_async": 0,
        "differ_another_ask_limit": 0,
        "differ_company": 0,
        "holds": True,
    }


def test_cases_are_of_both_kinds_of_search_with_and_without_order_and_limits():
    cases = [drawn(n, random.Random(f"test {n}")) for n in range(60)]
    assert {type(case.search()).__name__ for case in cases} == {"PolicyTreeSearch", "GuidedTreeSearch"}
    assert {case.candidates.order_matters for case in cases} == {True, False}
    assert None in {case.pair_limit for case in cases} and len({case.pair_limit for case in cases}) > 2
    assert any(case.score((0,)) is None for case in cases) and any(case.score((0,)) is not None for case in cases)


class Moody:
    """A search that asks for one combination, which depends on how many of its kind were made before."""

    reading, made = "raw", 0

    def __init__(self):
        Moody.made += 1
        self.left = [(Moody.made % 3,)]

    def ask(self, limit):
        return list(self.left)

    def tell(self, scores):
        self.told = self.left.pop()

    def best(self):
        return self.told, 0.0

    def why_stopped(self):
        return "all_scored"


def test_a_search_that_depends_on_its_company_is_seen():
    usual = drawn(1, random.Random(1)).candidates
    moody = [Case(n, usual, 9, lambda candidates, budget: Moody(), None, 0) for n in range(9)]
    told = checked(moody, random.Random(0))
    assert told["differ_company"] > 0 and not told["holds"]


def test_a_node_over_the_budget_is_seen():
    ignored = replace(PRESETS["carrot"], over_budget="ignored", iterations=2)
    usual = replace(
        drawn(1, random.Random(1)).candidates, costs=(5, 5), documents=(0, 0), positions=(0, 0), priors=(1.0, 1.0)
    )
    case = Case(0, usual, 7, lambda candidates, budget: PolicyTreeSearch(candidates, budget, ignored), None, 0)
    told = checked([case], random.Random(0))
    assert told["wrong_nodes"] == 1 and not told["holds"]
