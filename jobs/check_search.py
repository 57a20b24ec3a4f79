"""Proves that a search depends on nothing but what it is told: `python -m jobs.check_search --cases 10000`.

Random candidates, scores (some missing, many equal) and parameters of every strategy that keeps a tree. Each case is
searched alone in lockstep, asynchronously, alone with another limit an ask, and in a random company; trees, answers and
pairs must be the same. No node may be over the budget or hold a chunk twice.
"""

from __future__ import annotations

import asyncio
import json
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from corag_ray.batch.estimate import duration_text
from corag_ray.cli import reporting_errors
from corag_ray.core.drive import drive_async, drive_lockstep
from corag_ray.core.guided_tree import GuidedParams, GuidedTreeSearch
from corag_ray.core.policy_tree import PRESETS, PolicyTreeSearch
from corag_ray.core.strategy import Candidates, Strategy
from corag_ray.core.tree import Node, depth_first
from corag_ray.types import Combination

COMPANY = 20
SECONDS_A_CASE = 0.012
Outcome = tuple[Any, ...]
"""All that can be told of a finished search: pairs, answer, why it stopped, and its nodes with what they hold."""


@dataclass(frozen=True, slots=True)
class Case:
    """A query to search: its candidates, budget, strategy and limit of pairs; scores follow from `seed`."""

    seed: int
    candidates: Candidates
    budget_tokens: int
    make: Callable[[Candidates, int], Strategy]
    pair_limit: int | None
    missing: int

    def search(self) -> Strategy:
        """A fresh one."""
        return self.make(self.candidates, self.budget_tokens)

    def score(self, combination: Combination) -> float | None:
        """One of -1, -.8 .. 1, by the combination, or its set where the score is blind to order; None for some."""
        key = combination if self.candidates.order_matters else tuple(sorted(combination))
        value = zlib.crc32(repr((self.seed, key)).encode())
        return None if value % 10 < self.missing else (value // 10 % 11 - 5) / 5


def main(
    cases: Annotated[int, typer.Option(min=1, help="Random cases.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Of the cases.")] = 0,
) -> None:
    """Search every case in four ways; the last line is one JSON object."""
    print(f"{cases} cases: about {duration_text(cases * SECONDS_A_CASE)}.", flush=True)
    print(json.dumps(checked([drawn(n, random.Random(f"{seed} {n}")) for n in range(cases)], random.Random(seed))))


def drawn(number: int, chance: random.Random) -> Case:
    """A random case: up to 9 candidates, and a budget that may fit none or all of them."""
    k = chance.randint(0, 9)
    candidates = Candidates(
        costs=tuple(chance.randint(1, 6) for _ in range(k)),
        priors=tuple(sorted((chance.randint(0, 5) / 5 for _ in range(k)), reverse=True)),
        documents=tuple(chance.randint(0, 2) for _ in range(k)),
        positions=tuple(chance.randint(0, 3) for _ in range(k)),
        order_matters=chance.random() < 0.5,
    )
    limit = chance.choice([None, None, 0, 1, 7, 30])
    return Case(number, candidates, chance.randint(1, 25), _strategy(chance), limit, chance.choice([0, 0, 3]))


def _strategy(chance: random.Random) -> Callable[[Candidates, int], Strategy]:
    exploration, cost_weight = chance.choice([0.0, 0.1, 2.4, 50.0]), chance.choice([0.0, 0.1, 1.0])
    if chance.random() < 0.5:
        guided = GuidedParams(
            pairs=chance.choice([5, 60, 210]),
            singles=chance.randint(1, 9),
            width=chance.randint(1, 9),
            exploration=exploration,
            cost_weight=cost_weight,
            worth_weight=chance.choice([0.0, 0.04, 1.0]),
            swaps=chance.randint(0, 3),
        )
        return lambda candidates, budget_tokens: GuidedTreeSearch(candidates, budget_tokens, guided)
    preset, iterations = PRESETS[chance.choice(sorted(PRESETS))], chance.randint(1, 12)
    paper = replace(preset, iterations=iterations, exploration=exploration, cost_weight=cost_weight)
    return lambda candidates, budget_tokens: PolicyTreeSearch(candidates, budget_tokens, paper)


def checked(cases: Sequence[Case], chance: random.Random) -> dict[str, int | bool]:
    """How many cases there are, how many nodes, how many cases differ in some way, and how many nodes are wrong."""
    alone = [_alone(case) for case in cases]
    differ = {
        "async": [_async(case) for case in cases],
        "another_ask_limit": [_alone(case, ask_limit=chance.randint(1, 9)) for case in cases],
        "company": _in_company(cases, chance),
    }
    nodes = [(case, node) for case, (*_, tree) in zip(cases, alone, strict=True) for node in tree]
    wrong = sum(not _is_sound(case, combination) for case, (combination, *_) in nodes)
    told: dict[str, int | bool] = {"cases": len(cases), "nodes": len(nodes), "wrong_nodes": wrong}
    for way, outcomes in differ.items():
        told[f"differ_{way}"] = sum(one != other for one, other in zip(alone, outcomes, strict=True))
    return told | {"holds": not any(told[name] for name in told if name not in ("cases", "nodes"))}


def _alone(case: Case, ask_limit: int = 512) -> Outcome:
    search = case.search()
    pairs = drive_lockstep(
        [search],
        lambda asked: [case.score(combination) for _, combination in asked],
        in_flight=1,
        ask_limit=ask_limit,
        pair_limit=case.pair_limit,
    )
    return outcome(pairs[0], search)


def _async(case: Case) -> Outcome:
    async def score(asked: list[Combination]) -> list[float | None]:
        return [case.score(combination) for combination in asked]

    search = case.search()
    return outcome(asyncio.run(drive_async(search, score, pair_limit=case.pair_limit)), search)


def _in_company(cases: Sequence[Case], chance: random.Random) -> list[Outcome]:
    """Every case searched together with others that have its limit of pairs, in random order."""
    found: dict[int, Outcome] = {}
    for limit in {case.pair_limit: None for case in cases}:
        places = [place for place, case in enumerate(cases) if case.pair_limit == limit]
        chance.shuffle(places)
        for start in range(0, len(places), COMPANY):
            company = places[start : start + COMPANY]
            found |= zip(company, _together([cases[place] for place in company], limit, chance), strict=True)
    return [found[place] for place in range(len(cases))]


def _together(company: Sequence[Case], pair_limit: int | None, chance: random.Random) -> list[Outcome]:
    searches = [case.search() for case in company]
    pairs = drive_lockstep(
        searches,
        lambda asked: [company[number].score(combination) for number, combination in asked],
        in_flight=chance.randint(1, COMPANY),
        ask_limit=chance.randint(1, 60),
        pair_limit=pair_limit,
    )
    return list(map(outcome, pairs, searches))


def outcome(pairs: int, search: Strategy) -> Outcome:
    """All that can be told of a finished search."""
    root = getattr(search, "root", None)
    nodes = [node for node in depth_first(root) if node.combination] if isinstance(root, Node) else []
    held = [(node.combination, node.cost, node.score, node.visits, node.reward_sum, node.closed) for node in nodes]
    return pairs, search.best(), search.why_stopped(), held


def _is_sound(case: Case, combination: Combination) -> bool:
    cost = sum(case.candidates.costs[number] for number in combination)
    return cost <= case.budget_tokens and len(set(combination)) == len(combination)


if __name__ == "__main__":
    with reporting_errors():
        typer.run(main)
