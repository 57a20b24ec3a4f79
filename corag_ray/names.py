"""What the names in a configuration stand for: the one place where names become classes and packages of weights.

Above all three files look up here: `build.py` makes the objects, `identity.py` tells their numbers from others', and
`prepare.py` refuses what stands for nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from corag_ray.config import WINDOW_TOKENS, Config, CrossEncoderFolder
from corag_ray.core.beam import BeamSearch
from corag_ray.core.exhaustive import ExhaustiveSearch
from corag_ray.core.fill import SinglesFill
from corag_ray.core.guided_tree import GuidedTreeSearch
from corag_ray.core.policy_tree import PolicyTreeSearch
from corag_ray.core.random_fill import RandomFill
from corag_ray.core.strategy import Strategy
from corag_ray.errors import unknown_name
from corag_ray.models.calibration import Calibration, load_calibration
from corag_ray.models.combination_weights import COMBINATION, COMBINATION_HEAD, head_calibration
from corag_ray.models.packaged import MINILM, SMOLLM2, PackagedModel
from corag_ray.models.packaged_rerankers import PACKAGED_RERANKERS
from corag_ray.models.paper_rerankers import PAPER_RERANKERS, PaperReranker
from corag_ray.models.remote_code import may_run_code

EMBEDDERS: Mapping[str, PackagedModel] = {"minilm": MINILM}
GENERATORS: Mapping[str, PackagedModel] = {"smollm2": SMOLLM2}
"""Model names of the `local` profile."""

RERANKERS: Mapping[str, str] = {
    "late_interaction": "corag_ray.models.late_interaction:LateInteraction",
    "pooled_embedding": "corag_ray.models.pooled_embedding:PooledEmbedding",
    "bm25": "corag_ray.models.bm25_combination:BM25Combination",
    "query_likelihood": "corag_ray.models.query_likelihood:QueryLikelihood",
    COMBINATION: "corag_ray.models.combination_reranker:CombinationReranker",
}
"""Rerankers that need no folder from the user, as `module:class`, imported at first use."""
CROSS_ENCODER = "corag_ray.models.cross_encoder:CrossEncoder"
"""The class of `PACKAGED_RERANKERS`, and of what a configuration names under `cross_encoders`."""

STRATEGIES: Mapping[str, Callable[..., Strategy]] = {
    "corag": GuidedTreeSearch,
    "ranked": SinglesFill,
    "policy_tree": PolicyTreeSearch,
    "exhaustive": ExhaustiveSearch,
    "greedy": BeamSearch,
    "beam": BeamSearch,
    "mmr": SinglesFill,
    "coverage": SinglesFill,
    "similarity_penalty": SinglesFill,
    "random": RandomFill,
}
"""Strategies by the kind that a configuration names."""


def look_up(what: str, name: str, table: Mapping[str, Any]) -> Any:
    """What a table holds under a name.

    Raises:
        ConfigError: nothing; the message says `what` the name should be of, and suggests the nearest.
    """
    if name not in table:
        raise unknown_name(what, name, table)
    return table[name]


def reranker_class(config: Config, name: str) -> Any:
    """The class of a reranker, a cross-encoder or one of `RERANKERS`; its module is imported.

    Raises:
        ConfigError: an unknown name.
    """
    cross_encoders = dict.fromkeys([*PACKAGED_RERANKERS, *config.cross_encoders], CROSS_ENCODER)
    module, _, class_name = look_up("reranker", name, {**cross_encoders, **RERANKERS}).partition(":")
    return getattr(importlib.import_module(module), class_name)


def combination_head(config: Config) -> Any:
    """The `SetHead` of `combination`, loaded.

    Raises:
        MissingModelError: its weights are not there.
        DataError: they are damaged, or of another embedder than the configuration's.
    """
    from corag_ray.models.set_head import load_head  # it imports torch

    return load_head(COMBINATION_HEAD, str(EMBEDDERS[config.embedder].revision))


def reranker_traits(config: Config) -> dict[str, dict[str, bool]]:
    """By reranker that a method asks, what its class declares: tables that speak of order must say who scored."""
    classes = {name: reranker_class(config, name) for name in sorted(config.rerankers)}
    return {n: {"order_sensitive": c.order_sensitive, "monotone": c.monotone} for n, c in classes.items()}


def cross_encoder_names(config: Config) -> set[str]:
    """The packaged cross-encoders and the configuration's."""
    return {*PACKAGED_RERANKERS, *config.cross_encoders}


def asked_cross_encoders(config: Config) -> list[str]:
    """The cross-encoders that a method asks, in the order of their names."""
    return sorted(config.rerankers & cross_encoder_names(config))


def cross_encoder_entry(config: Config, name: str) -> CrossEncoderFolder:
    """Where a cross-encoder lies and how it is read: as the configuration says, or a packaged one, put together first.

    A packaged one lies in the cache of this machine: each process asks anew, and no configuration holds the folder.

    Raises:
        MissingModelError: a packaged one has no weights, its base is not installed, or the cache cannot be written.
        DataError: its weights are damaged, or of another base.
    """
    if name in PACKAGED_RERANKERS:
        return CrossEncoderFolder(folder=PACKAGED_RERANKERS[name].folder(), max_tokens=WINDOW_TOKENS)
    return config.cross_encoders[name]


def paper_row(config: Config, name: str) -> PaperReranker | None:
    """The row that a cross-encoder names; None for a packaged one, and for one of the user's own."""
    entry = config.cross_encoders.get(name)
    return None if entry is None or entry.model is None else PAPER_RERANKERS[entry.model]


def runs_code(config: Config, name: str) -> bool:
    """Whether a cross-encoder runs code of its folder; a packaged one has none.

    Raises:
        ConfigError: it would, and the configuration does not allow that.
    """
    if name in PACKAGED_RERANKERS:
        return False
    row = paper_row(config, name)
    revision = config.remote_code.get(name if row is None else row.hub_id)
    return may_run_code(name, config.cross_encoders[name].folder, row, revision)


def calibration_of(config: Config, name: str) -> Calibration | None:
    """A reranker's curve, fitted for the revision of its model or given by the paper's row; None where it has none.

    Raises:
        MissingModelError: a packaged cross-encoder has no weights.
        DataError: a file of curves is damaged.
    """
    if name in PACKAGED_RERANKERS:
        return PACKAGED_RERANKERS[name].calibration()
    if name in config.cross_encoders:
        row = paper_row(config, name)
        return None if row is None else row.output
    if name == COMBINATION:
        return head_calibration(COMBINATION_HEAD)
    revisions = {
        "late_interaction": EMBEDDERS[config.embedder].revision,
        "pooled_embedding": EMBEDDERS[config.embedder].revision,
        "query_likelihood": GENERATORS[config.generation.model].revision,
    }
    return load_calibration(name, revisions.get(name))


def calibrations(config: Config) -> dict[str, Calibration | None]:
    """By reranker that a method asks, its curve; None where it has none."""
    return {name: calibration_of(config, name) for name in sorted(config.rerankers)}
