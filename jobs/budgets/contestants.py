"""Who is compared: NaiveRAG, and each reranker in three ways, searched, greedy, and by single chunks alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from corag_ray.config import Config, Method, PlainStrategy, PolicyTreeStrategy
from corag_ray.core.policy_tree import PRESETS
from corag_ray.datasets.assemble import Dataset
from corag_ray.errors import ConfigError
from corag_ray.identity import run_fingerprint
from corag_ray.names import look_up, reranker_class
from jobs.budgets.row_log import SCHEMA_VERSION

NAIVE = "naive_rag"
"""Fills the budget by first-stage rank and asks no reranker."""
PAIRS, PAIRS_OF_SLOW = 2000, 210
"""That a search may ask for: of rerankers that compute a score about as fast as it is looked up, and of the others."""
WAYS = ("", "_greedy", "_ranked")
"""What a contestant's name has behind the reranker's: searched, greedy, and filled by scores of single chunks."""
MORE_OF_NAIVE = (64, 96, 192, 384, 768)
"""Budgets in tokens of NaiveRAG alone, for its curve."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A method under a limit of pairs. `is_slow` is whether it is asked fewer questions, at fewer budgets."""

    name: str
    method: Method
    pair_limit: int
    is_slow: bool

    @property
    def reranker(self) -> str:
        """Whom it asks; `NAIVE`, which is no reranker's name, where it asks none."""
        return NAIVE if self.name == NAIVE else self.method.reranker


Planned = list[tuple[Contestant, int]]
"""Methods, each at a budget in tokens."""


def contestants_of(config: Config, rerankers: Sequence[str], preset: str) -> list[Contestant]:
    """NaiveRAG first, then each reranker's in the order of `WAYS`.

    Raises:
        ConfigError: a reranker or the preset is unknown, or two contestants would have one name.
    """
    look_up("preset", preset, PRESETS)
    found = [Contestant(NAIVE, Method(strategy=PlainStrategy(kind="ranked")), 0, is_slow=False)]
    for reranker in rerankers:
        is_slow = bool(reranker_class(config, reranker).memoised)
        pairs = PAIRS_OF_SLOW if is_slow else PAIRS
        # An expansion asks for a pair at least, so the limit of pairs ends the search before that of expansions does.
        tree = PolicyTreeStrategy(kind="policy_tree", preset=preset, changes={"iterations": pairs})
        for way, strategy in zip(WAYS, (tree, PlainStrategy(kind="greedy"), PlainStrategy(kind="ranked")), strict=True):
            found.append(Contestant(reranker + way, Method(strategy=strategy, reranker=reranker), pairs, is_slow))
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two rows would be named '{name}': rename the cross-encoder's folder.")
    return found


def plan_of(contestants: Sequence[Contestant], budgets: Sequence[int], budgets_slow: Sequence[int]) -> Planned:
    """Every method at its budgets; NaiveRAG at all of them and more, one beyond, so that its curve ends behind all."""
    named = {*budgets, *budgets_slow}
    of_naive = sorted({*named, *MORE_OF_NAIVE, 3 * max(named) // 2})
    return [
        (one, budget)
        for one in contestants
        for budget in (of_naive if one.name == NAIVE else budgets_slow if one.is_slow else budgets)
    ]


def fingerprint_of(config: Config, dataset: Dataset, contestant: Contestant, budget_tokens: int) -> str:
    """Hash of what a row's numbers depend on; neither other contestants nor the number of questions are among it."""
    one = config.model_copy(update={"budget_tokens": budget_tokens, "methods": {contestant.name: contestant.method}})
    told = [run_fingerprint(one, dataset), contestant.pair_limit, SCHEMA_VERSION]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
