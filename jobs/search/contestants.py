"""Who is compared: every strategy by name, and ours with some of its parameters changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

import yaml

from corag_ray.config import Config, Method, PlainStrategy, PolicyTreeStrategy
from corag_ray.datasets.assemble import Dataset
from corag_ray.errors import ConfigError
from corag_ray.identity import run_fingerprint
from corag_ray.names import look_up
from jobs.search.rows import SCHEMA_VERSION

OURS, NAIVE = "corag", "naive"
STRATEGIES: Mapping[str, PlainStrategy | PolicyTreeStrategy] = {
    NAIVE: PlainStrategy(kind="ranked"),
    "greedy": PlainStrategy(kind="greedy"),
    "beam": PlainStrategy(kind="beam"),
    "mmr": PlainStrategy(kind="mmr"),
    "seed": PolicyTreeStrategy(kind="policy_tree", preset="seed"),
    "report": PolicyTreeStrategy(kind="policy_tree", preset="report"),
    "carrot": PolicyTreeStrategy(kind="policy_tree", preset="carrot"),
    OURS: PlainStrategy(kind="corag"),
}
"""In the order of tables, with their defaults."""


def methods_of(names: Sequence[str], reranker: str, most_pairs: int, variants: Sequence[str] = ()) -> dict[str, Method]:
    """By name the strategies, ours with so many pairs, and our variants, such as `exploration=0,swaps=0`.

    Raises:
        ConfigError: a name, a parameter or its value is unknown.
    """
    wanted = {name: look_up("strategy", name, STRATEGIES) for name in names}
    if OURS in wanted:
        wanted[OURS] = PlainStrategy(kind="corag", changes={"pairs": most_pairs})
    for variant in variants:
        changes = {"pairs": most_pairs, **_changes_of(variant)}
        wanted[f"{OURS} {variant}"] = PlainStrategy(kind="corag", changes=changes)
    return {name: Method(strategy=strategy, reranker=reranker) for name, strategy in wanted.items()}


def fingerprint_of(
    config: Config, dataset: Dataset, method: Method, budget_tokens: int, pair_limits: Sequence[int]
) -> str:
    """Hash of what a row's numbers depend on; neither other strategies nor the number of questions are among it."""
    one = config.model_copy(update={"budget_tokens": budget_tokens, "methods": {"one": method}})
    told = [run_fingerprint(one, dataset), list(pair_limits), SCHEMA_VERSION]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def _changes_of(variant: str) -> dict[str, object]:
    changes: dict[str, object] = {}
    for part in variant.split(","):
        name, found, value = part.partition("=")
        if not found:
            raise ConfigError(f"a variant is written as PARAMETER=VALUE, parted by commas, not '{variant}'.")
        changes[name.strip()] = yaml.safe_load(value)
    return changes
