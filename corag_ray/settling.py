"""What a configuration leaves open, decided: the number type by the processor, folders from the root, a draw's seed."""

from __future__ import annotations

import dataclasses
from typing import Any

from corag_ray.config import Config, PlainStrategy, PolicyTreeStrategy
from corag_ray.core.random_fill import RandomParams
from corag_ray.models.torch_setup import Compute, native_dtype


def settle(config: Config) -> Config:
    """The configuration with its number type decided and its folders of models told from the root of the file system.

    Called once, in the driver, so that all processes agree: an actor on a cluster has a working folder of its own.
    """
    own = {n: e.model_copy(update={"folder": e.folder.resolve()}) for n, e in config.cross_encoders.items()}
    changes: dict[str, Any] = {"cross_encoders": own}
    if config.deterministic or config.dtype == "auto":
        changes["dtype"] = "float32" if config.deterministic else native_dtype()
    server = config.generation.server
    if config.memo.path is not None:
        changes["memo"] = config.memo.model_copy(update={"path": config.memo.path.resolve()})
    if server is not None and server.tokenizer is not None:
        server = server.model_copy(update={"tokenizer": server.tokenizer.resolve()})
        changes["generation"] = config.generation.model_copy(update={"server": server})
    return config.model_copy(update=changes)


def compute(config: Config) -> Compute:
    """How this run's processes compute."""
    return Compute(config.plan.threads, config.deterministic, settle(config).dtype)


def params_of(strategy: PlainStrategy | PolicyTreeStrategy, seed: int) -> Any:
    """A strategy's parameters; one that draws does so by the run's seed where the configuration gives it none."""
    if isinstance(strategy.params, RandomParams) and "seed" not in strategy.changes:
        return dataclasses.replace(strategy.params, seed=seed)
    return strategy.params
