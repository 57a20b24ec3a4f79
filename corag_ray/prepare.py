"""Before anything is loaded: weights are unpacked, and what a run could not work with is refused in one sentence."""

from __future__ import annotations

from corag_ray.config import Config
from corag_ray.core.exhaustive import ExhaustiveParams, check_number
from corag_ray.errors import ConfigError, MissingModelError, unknown_name
from corag_ray.memo import ScoreFile
from corag_ray.models.checkpoint_config import check_flag_embedding_installed, check_folder, check_window
from corag_ray.models.combination_weights import COMBINATION
from corag_ray.models.onnx_logits import check_onnx_installed
from corag_ray.models.packaged_rerankers import PACKAGED_RERANKERS
from corag_ray.models.paper_rerankers import PAPER_RERANKERS, check_checkpoint
from corag_ray.names import (
    EMBEDDERS,
    GENERATORS,
    RERANKERS,
    asked_cross_encoders,
    combination_head,
    look_up,
    paper_row,
    reranker_class,
    runs_code,
)
from corag_ray.prompts import PROMPTS
from corag_ray.settling import compute


def prepare_weights(config: Config) -> None:
    """Unpack the weights that a run needs, here and once, so that a missing package is one sentence before Ray starts.

    Raises:
        ConfigError: an unknown embedder, generator, prompt or reranker (the message suggests the nearest), a folder
            that is not there, holds code that is not allowed or a model that is not the one of the paper's that it is
            said to be, or an exhaustive search of too many combinations.
        DataError: the file of the memo cannot be used, or weights that come with the package are damaged.
        MissingModelError: a package of weights is not installed, or ONNX Runtime where it is to compute, `combination`
            or a packaged cross-encoder has no weights, or one of the paper's rerankers no folder.
    """
    look_up("prompt", config.generation.prompt, PROMPTS)
    _check_cross_encoders(config)
    if config.memo.path is not None:
        ScoreFile(config.memo.path).close()
    _check_exhaustive(config)
    look_up("embedder", config.embedder, EMBEDDERS).folder()
    for name in sorted(config.rerankers & PACKAGED_RERANKERS.keys()):
        compute(config).apply()  # what puts it together imports torch
        PACKAGED_RERANKERS[name].folder()
    if COMBINATION in config.rerankers:
        compute(config).apply()  # the head's module imports torch
        combination_head(config)
    generator = look_up("generator", config.generation.model, GENERATORS)
    server = config.generation.server
    if server is None or "query_likelihood" in config.rerankers:
        generator.folder()
    folder = server.tokenizer if server else None
    if folder is not None and not (folder / "tokenizer.json").is_file():
        raise ConfigError(
            f"generation.server.tokenizer: {folder} has no tokenizer.json; put the model's there or leave the key out."
        )


def _check_exhaustive(config: Config) -> None:
    """Refuse beforehand what the search would refuse at the first question with all its candidates."""
    for name, method in config.methods.items():
        params = method.strategy and method.strategy.params
        if isinstance(params, ExhaustiveParams):
            compute(config).apply()  # the reranker's module may import transformers
            ordered = reranker_class(config, method.reranker).order_sensitive
            try:
                check_number(min(config.retrieval.num_candidates, params.num_candidates), params.max_chunks, ordered)
            except ConfigError as error:
                raise ConfigError(f"methods.{name}: {error}") from error


def _check_cross_encoders(config: Config) -> None:
    """Refuse cross-encoders that cannot be loaded, or may not be, before anything is."""
    for name in config.cross_encoders:
        if name in RERANKERS or name in PACKAGED_RERANKERS:
            raise ConfigError(
                f"cross_encoders: '{name}' is the name of a reranker that is there already; choose another."
            )
    for method_name, method in config.methods.items():
        name = method.reranker
        if name in PAPER_RERANKERS and name not in config.cross_encoders:
            raise MissingModelError(
                f"methods.{method_name}: the weights of '{name}' are not packaged: fetch "
                f"{PAPER_RERANKERS[name].hub_id} at {PAPER_RERANKERS[name].revision} from the hub and name its folder, "
                f"`cross_encoders: {{{name}: {{model: {name}, folder: PATH}}}}`."
            )
        known = {**RERANKERS, **PACKAGED_RERANKERS, **config.cross_encoders, **PAPER_RERANKERS}
        if name not in known:
            error = unknown_name(f"reranker of methods.{method_name}", name, known)
            raise ConfigError(f"{error} A cross-encoder of your own needs an entry under `cross_encoders`.")
    for name in asked_cross_encoders(config):
        if name in PACKAGED_RERANKERS:
            check_flag_embedding_installed()
            continue
        row, entry = paper_row(config, name), config.cross_encoders[name]
        runs_code(config, name)
        check_folder(name, entry.folder)
        if row is not None:
            check_checkpoint(name, entry.folder, row)
        check_window(name, entry.folder, entry.max_tokens)
        check_flag_embedding_installed()
        if entry.is_int8:
            check_onnx_installed(name)
