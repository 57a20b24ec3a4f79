"""From a configuration to the objects of a run, loaded; what its names stand for is in `names.py`."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corag_ray import pipeline
from corag_ray.config import Config, Method
from corag_ray.identity import reranker_identities
from corag_ray.indexing.open_index import OpenIndex, open_index
from corag_ray.indexing.token_ids import holds_token_ids, open_token_ids
from corag_ray.indexing.versions import IndexSpec
from corag_ray.memo import Memo
from corag_ray.models.byte_tokenizer import ByteTokenizer
from corag_ray.models.checkpoint_config import weights_hash
from corag_ray.models.chunk_tokenizer import ChunkTokenizer
from corag_ray.models.pair_inputs import Pooling
from corag_ray.models.protocols import Embedder, PromptTokenizer, Reranker, StreamingGenerator, TokenIds
from corag_ray.names import (
    EMBEDDERS,
    GENERATORS,
    STRATEGIES,
    asked_cross_encoders,
    calibration_of,
    combination_head,
    cross_encoder_entry,
    cross_encoder_names,
    look_up,
    reranker_class,
    runs_code,
)
from corag_ray.prompts import PROMPTS
from corag_ray.settling import compute, params_of

SCORED_FROM_PREPARED = frozenset({"late_interaction", "combination"})
"""Rerankers whose scores cost so little that a search computes them itself, from what another process has prepared."""


def build_embedder(config: Config) -> Embedder:
    """The embedder, loaded."""
    compute(config).apply()  # before transformers is imported: it reads the offline variables once
    from corag_ray.models.embedder import MeanPooledEmbedder

    return MeanPooledEmbedder(look_up("embedder", config.embedder, EMBEDDERS).folder(), compute(config))


def embedding_dim(config: Config) -> int:
    """Width of the embedder's vectors, told by its checkpoint without loading it."""
    folder = look_up("embedder", config.embedder, EMBEDDERS).folder()
    return int(json.loads((folder / "config.json").read_text("utf-8"))["hidden_size"])


def build_tokenizer(config: Config) -> PromptTokenizer:
    """The generator's tokenizer, without its weights; bytes bound the tokens of a server's model that came without."""
    name, server = config.generation.model, config.generation.server
    if server is not None and server.tokenizer is None:
        return ByteTokenizer(server.model, server.context_window)
    compute(config).apply()
    from corag_ray.models.generator import ChatTokenizer

    if server is not None and server.tokenizer is not None:
        return ChatTokenizer(server.tokenizer, server.model, server.context_window)
    return ChatTokenizer(look_up("generator", name, GENERATORS).folder(), name)


def build_generator(config: Config) -> StreamingGenerator:
    """The generator, loaded, or the client of the server that is asked instead."""
    name, server = config.generation.model, config.generation.server
    if server is not None:
        from corag_ray.models.openai_generator import OpenAIGenerator, ServerSettings

        settings = server.model_dump(exclude={"tokenizer", "context_window"})
        return OpenAIGenerator(ServerSettings(**settings, seed=config.seed), build_tokenizer(config))
    compute(config).apply()
    from corag_ray.models.generator import ChatTokenizer, TransformersGenerator

    folder = look_up("generator", name, GENERATORS).folder()
    return TransformersGenerator(folder, ChatTokenizer(folder, name), compute(config))


def build_cross_encoder(config: Config, name: str, index: OpenIndex | None = None) -> Reranker[Any]:
    """A cross-encoder, loaded; it runs code of its folder where the configuration allows that.

    Chunks that `index` holds as ids of its tokenizer are not tokenised again.
    """
    compute(config).apply()  # before a packaged one is put together: its module imports torch
    entry = cross_encoder_entry(config, name)
    make: Callable[..., Reranker[Any]] = reranker_class(config, name)
    return make(
        entry.folder,
        name,
        entry.max_tokens,
        compute(config),
        calibration=calibration_of(config, name),
        remote_code=runs_code(config, name),
        stored=None if index is None else functools.partial(_stored_ids, index),
        pooling=Pooling(entry.pooling),
        int8=weights_hash(entry.folder) if entry.is_int8 else None,
    )


def build_answerer(config: Config) -> pipeline.Answerer:
    """The second half of the pipeline."""
    return pipeline.Answerer(build_generator(config), config.generation.max_new_tokens)


def build_selector(
    config: Config, index_folder: Path, spec: IndexSpec, *, keep_searches: bool = False
) -> pipeline.Selector:
    """The first half of the pipeline, over a finished index; `keep_searches` hands out searches with their choices."""
    embedder = build_embedder(config)
    index = open_index(index_folder, spec, embedder, config.retrieval.kind)
    return pipeline.Selector(
        store=index.store,
        index_version=index.version,
        first_stage=index.first_stage,
        vectors=index.dense.vectors,
        rerankers={name: build_reranker(config, name, embedder, index) for name in sorted(config.rerankers)},
        tokenizer=build_tokenizer(config),
        prompt=PROMPTS[config.generation.prompt],
        methods={name: build_method(method, config.seed) for name, method in config.methods.items()},
        num_candidates=config.retrieval.num_candidates,
        budget_tokens=config.budget_tokens,
        max_new_tokens=config.generation.max_new_tokens,
        keep_searches=keep_searches,
        memo=build_memo(config),
    )


def build_memo(config: Config) -> Memo:
    """The memo of the configuration's rerankers that are worth one.

    Raises:
        DataError: its file cannot be used.
    """
    return Memo(reranker_identities(config), config.memo.entries, config.memo.path)


def build_method(method: Method, seed: int) -> pipeline.Method:
    """A method of the pipeline, with its strategy's class and parameters; `seed` is the run's."""
    strategy = method.strategy
    if strategy is None:
        return pipeline.Method(method.source)
    params = params_of(strategy, seed)
    make = functools.partial(STRATEGIES[strategy.kind], params=params)
    needs_similarity = getattr(params, "needs_similarity", False)
    return pipeline.Method(method.source, make, method.reranker, method.order, needs_similarity)


def describe(config: Config, name: str) -> dict[str, str]:
    """A method's settings by name, as text."""
    method = config.methods[name]
    told = {"method": name, "budget": f"{config.budget_tokens} tokens", "retrieval": config.retrieval.kind}
    if method.strategy is None:
        return told | {"source": method.source}
    params = {field: str(value) for field, value in dataclasses.asdict(params_of(method.strategy, config.seed)).items()}
    return told | {"reranker": method.reranker, "strategy": method.strategy.kind, "order": method.order} | params


def chunk_tokenizers(config: Config) -> dict[str, ChunkTokenizer]:
    """By key, the tokenizers that the index's chunks are read with, of each cross-encoder asked.

    A checkpoint has two where a chunk's ids are others behind a blank than alone. One whose tokenizer is code of its
    own is left out: its cross-encoder tokenises the candidates' texts at every query.

    Raises:
        ConfigError: a folder's tokenizer cannot be loaded.
    """
    folders = sorted({cross_encoder_entry(config, name).folder for name in asked_cross_encoders(config)})
    loaded = [tokenizer for folder in folders if (tokenizer := ChunkTokenizer.load(folder)) is not None]
    return {form.key: form for tokenizer in loaded for form in (tokenizer, tokenizer.behind_a_blank())}


def build_reranker(config: Config, name: str, embedder: Embedder, index: OpenIndex | None) -> Reranker[Any]:
    """A reranker, loaded, with what its class takes; without an index, one of `SCORED_FROM_PREPARED` alone.

    Raises:
        ConfigError: the configuration has none of this name.
    """
    if name in cross_encoder_names(config):
        return build_cross_encoder(config, name, index)
    made: Reranker[Any]
    make = functools.partial(reranker_class(config, name), calibration=calibration_of(config, name))
    stored = None if index is None else index.token_vectors
    match name:
        case "late_interaction":
            made = make(embedder, stored)
        case "pooled_embedding" if index is not None:
            made = make(embedder, index.dense.vectors)
        case "bm25" if index is not None:
            made = make(index.lexical, index.store.total_cost / len(index.store))
        case "query_likelihood":
            made = make(look_up("generator", config.generation.model, GENERATORS).folder(), compute(config))
        case "combination":
            made = make(embedder, stored, combination_head(config), compute(config))
    return made


def _stored_ids(index: OpenIndex, key: str) -> TokenIds | None:
    """The index's chunks as ids of the tokenizer with this key; None where it was made without."""
    return open_token_ids(index.folder, key, len(index.store)) if holds_token_ids(index.folder, key) else None
