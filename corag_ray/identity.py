"""What numbers depend on, told by content: the fingerprint of a run, the spec of its index, who made a raw score."""

from __future__ import annotations

import dataclasses
import hashlib
import json

from corag_ray.config import Config, CrossEncoderFolder
from corag_ray.datasets.assemble import Dataset
from corag_ray.evaluation.manifest import package_version
from corag_ray.evaluation.row_log import SCHEMA_VERSION as ROW_SCHEMA_VERSION
from corag_ray.indexing.versions import SCHEMA_VERSION as INDEX_SCHEMA_VERSION
from corag_ray.indexing.versions import IndexSpec
from corag_ray.models import onnx_logits
from corag_ray.models.checkpoint_config import weights_hash as weights_hash  # jobs ask for it here
from corag_ray.models.combination_weights import COMBINATION, COMBINATION_HEAD, head_revision
from corag_ray.models.packaged_rerankers import PACKAGED_RERANKERS
from corag_ray.names import (
    EMBEDDERS,
    GENERATORS,
    asked_cross_encoders,
    calibrations,
    cross_encoder_entry,
    reranker_class,
)
from corag_ray.prompts import LANGUAGES, PROMPTS
from corag_ray.scoring import SCORE_DECIMALS
from corag_ray.settling import params_of, settle

COMPUTING_LIBRARIES = ("torch", "transformers", "tokenizers", "faiss-cpu", "bm25s", "numpy", "rouge-score")
"""Packages whose versions can change a number of any run."""
RERANKING_LIBRARIES = ("torch", "transformers", "tokenizers", "FlagEmbedding")
"""Packages whose versions can change the raw score of a memoised reranker."""


def index_spec(config: Config, dataset: Dataset) -> IndexSpec:
    """What the index of this corpus depends on."""
    return IndexSpec(
        corpus=dataset.fingerprint,
        chunking=config.chunking,
        embedder=str(EMBEDDERS[config.embedder].revision),
        dtype=settle(config).dtype,
        cost_tokenizer=_cost_tokenizer(config),
        token_vectors=config.token_vectors,
    )


def run_fingerprint(config: Config, dataset: Dataset) -> str:
    """Hash of what a row's numbers depend on.

    Names stand for code that can change under them, so what they stand for is hashed: the presets' values, the prompt
    as it renders, the versions of the stored formats and of the libraries that compute. Folders stand for the files in
    them.
    """
    config = settle(config)
    prompt = PROMPTS[config.generation.prompt]
    parts = [
        config.numbers,
        [m.strategy and dataclasses.asdict(params_of(m.strategy, config.seed)) for m in config.methods.values()],
        [prompt("question", passages, language) for language in LANGUAGES for passages in (["passage"], None)],
        dataset.fingerprint,
        dataset.questions_fingerprint,
        EMBEDDERS[config.embedder].revision,
        GENERATORS[config.generation.model].revision,
        _cost_tokenizer(config),
        [*reranker_identities(config).values(), *_heads(config)],
        [curve and dataclasses.asdict(curve) for curve in calibrations(config).values()],
        [ROW_SCHEMA_VERSION, INDEX_SCHEMA_VERSION, SCORE_DECIMALS],
        [package_version(package) for package in ("corag_ray", *COMPUTING_LIBRARIES)],
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def reranker_identities(config: Config) -> dict[str, str]:
    """By memoised reranker, all that its raw scores depend on beside query and texts; the calibration is not in it.

    The deterministic mode is: its numbers depend on nothing else, and a memo must not bring in others'.
    """
    config = settle(config)
    identities = {}
    for name in sorted(config.rerankers):
        made_by = reranker_class(config, name)
        if made_by.memoised:
            entry = cross_encoder_entry(config, name) if name in asked_cross_encoders(config) else None
            int8 = entry is not None and entry.is_int8
            packages = RERANKING_LIBRARIES + (onnx_logits.PACKAGES if int8 else ())
            libraries = [(package, package_version(package)) for package in packages]
            number_type = ["int8", onnx_logits.EXPORT_VERSION] if int8 else config.dtype
            computing = [libraries, number_type, config.deterministic, made_by.template_version]
            windows = entry and [entry.max_tokens, entry.pooling]
            identities[name] = json.dumps([made_by.__name__, _weights(name, entry, config), windows, *computing])
    return identities


def _weights(name: str, entry: CrossEncoderFolder | None, config: Config) -> str | None:
    """What tells the weights of a memoised reranker from others'.

    Those of a packaged one by what comes with the package: its sums are rounded where they are put together.
    """
    if name in PACKAGED_RERANKERS:
        return PACKAGED_RERANKERS[name].revision
    return weights_hash(entry.folder) if entry else GENERATORS[config.generation.model].revision


def _heads(config: Config) -> list[str]:
    """The revision of `combination`'s weights, which no memo holds, where a method asks it."""
    return [head_revision(COMBINATION_HEAD)] if COMBINATION in config.rerankers else []


def _cost_tokenizer(config: Config) -> str:
    """What tells the tokenizer that counts costs from any other."""
    server = config.generation.server
    if server is None:
        return str(GENERATORS[config.generation.model].revision)
    if server.tokenizer is None:
        return "utf-8 bytes"
    return hashlib.sha256((server.tokenizer / "tokenizer.json").read_bytes()).hexdigest()[:16]
