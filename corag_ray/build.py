"""From names in a configuration to objects: the only place that knows which class a name stands for."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from corag_ray import pipeline
from corag_ray.config import Config, Method, PlainStrategy, PolicyTreeStrategy
from corag_ray.core.beam import BeamSearch
from corag_ray.core.exhaustive import ExhaustiveParams, ExhaustiveSearch, check_number
from corag_ray.core.fill import SinglesFill
from corag_ray.core.policy_tree import PolicyTreeSearch
from corag_ray.core.random_fill import RandomFill, RandomParams
from corag_ray.core.strategy import Strategy
from corag_ray.datasets.assemble import Dataset
from corag_ray.errors import ConfigError, MissingModelError, unknown_name
from corag_ray.evaluation.manifest import package_version
from corag_ray.evaluation.row_log import SCHEMA_VERSION as ROW_SCHEMA_VERSION
from corag_ray.indexing.open_index import OpenIndex, open_index
from corag_ray.indexing.token_ids import holds_token_ids, open_token_ids
from corag_ray.indexing.versions import SCHEMA_VERSION as INDEX_SCHEMA_VERSION
from corag_ray.indexing.versions import IndexSpec
from corag_ray.memo import Memo, ScoreFile
from corag_ray.models.byte_tokenizer import ByteTokenizer
from corag_ray.models.calibration import Calibration, load_calibration
from corag_ray.models.chunk_tokenizer import tokenizer_key
from corag_ray.models.packaged import MINILM, SMOLLM2, PackagedModel
from corag_ray.models.pair_inputs import TEMPLATE_VERSION
from corag_ray.models.paper_rerankers import PAPER_RERANKERS, PaperReranker
from corag_ray.models.protocols import Embedder, Generator, PromptTokenizer, Reranker, TokenIds
from corag_ray.models.remote_code import may_run_code
from corag_ray.models.torch_setup import Compute, native_dtype
from corag_ray.prompts import LANGUAGES, PROMPTS
from corag_ray.scoring import SCORE_DECIMALS

EMBEDDERS: Mapping[str, PackagedModel] = {"minilm": MINILM}
GENERATORS: Mapping[str, PackagedModel] = {"smollm2": SMOLLM2}
"""Model names of the `local` profile."""

RERANKERS: Mapping[str, str] = {
    "late_interaction": "corag_ray.models.late_interaction:LateInteraction",
    "pooled_embedding": "corag_ray.models.pooled_embedding:PooledEmbedding",
    "bm25": "corag_ray.models.bm25_combination:BM25Combination",
    "query_likelihood": "corag_ray.models.query_likelihood:QueryLikelihood",
}
"""Rerankers without weights of their own, as `module:class`, imported at first use."""
CROSS_ENCODER = "corag_ray.models.cross_encoder:CrossEncoder"
"""The class of what a configuration names under `cross_encoders`."""

STRATEGIES: Mapping[str, Callable[..., Strategy]] = {
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

COMPUTING_LIBRARIES = ("torch", "transformers", "tokenizers", "faiss-cpu", "bm25s", "numpy", "rouge-score")
"""Packages whose versions can change a number of any run."""


RERANKING_LIBRARIES = ("torch", "transformers", "tokenizers", "FlagEmbedding")
"""Packages whose versions can change the raw score of a memoised reranker."""


def reranker_traits(config: Config) -> dict[str, dict[str, bool]]:
    """By reranker of the configuration, what its class declares: tables that speak of order must say who scored."""
    classes = {name: _reranker_class(config, name) for name in sorted(config.rerankers)}
    return {n: {"order_sensitive": c.order_sensitive, "monotone": c.monotone} for n, c in classes.items()}


def calibrations(config: Config) -> dict[str, Calibration | None]:
    """By reranker of the configuration, the curve fitted for the revision of the model that it uses here."""
    return {name: _calibration(config, name) for name in sorted(config.rerankers)}


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


def build_embedder(config: Config) -> Embedder:
    """The embedder, loaded."""
    compute(config).apply()  # before transformers is imported: it reads the offline variables once
    from corag_ray.models.embedder import MeanPooledEmbedder

    return MeanPooledEmbedder(_look_up("embedder", config.embedder, EMBEDDERS).folder(), compute(config))


def build_tokenizer(config: Config) -> PromptTokenizer:
    """The generator's tokenizer, without its weights; bytes bound the tokens of a server's model that came without."""
    name, server = config.generation.model, config.generation.server
    if server is not None and server.tokenizer is None:
        return ByteTokenizer(server.model, server.context_window)
    compute(config).apply()
    from corag_ray.models.generator import ChatTokenizer

    if server is not None and server.tokenizer is not None:
        return ChatTokenizer(server.tokenizer, server.model, server.context_window)
    return ChatTokenizer(_look_up("generator", name, GENERATORS).folder(), name)


def build_generator(config: Config) -> Generator:
    """The generator, loaded, or the client of the server that is asked instead."""
    name, server = config.generation.model, config.generation.server
    if server is not None:
        from corag_ray.models.openai_generator import OpenAIGenerator, ServerSettings

        settings = server.model_dump(exclude={"tokenizer", "context_window"})
        return OpenAIGenerator(ServerSettings(**settings, seed=config.seed), build_tokenizer(config))
    compute(config).apply()
    from corag_ray.models.generator import ChatTokenizer, TransformersGenerator

    folder = _look_up("generator", name, GENERATORS).folder()
    return TransformersGenerator(folder, ChatTokenizer(folder, name), compute(config))


def build_cross_encoder(config: Config, name: str, index: OpenIndex | None = None) -> Reranker[Any]:
    """A cross-encoder of the configuration, loaded; it runs code of its folder where the configuration allows that.

    Chunks that `index` holds as ids of its tokenizer are not tokenised again.
    """
    entry = config.cross_encoders[name]
    make: Callable[..., Reranker[Any]] = _reranker_class(config, name)
    remote_code = _may_run_code(config, name)
    stored = None if index is None else _stored_ids(entry.folder, index)
    return make(entry.folder, name, entry.max_tokens, compute(config), _calibration(config, name), remote_code, stored)


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
        rerankers={name: _build_reranker(config, name, embedder, index) for name in sorted(config.rerankers)},
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


def reranker_identities(config: Config) -> dict[str, str]:
    """By memoised reranker, all that its raw scores depend on beside query and texts; the calibration is not in it.

    The deterministic mode is: its numbers depend on nothing else, and a memo must not bring in others'.
    """
    run = settle(config)
    identities = {}
    for name in sorted(config.rerankers):
        made_by = _reranker_class(config, name)
        if made_by.memoised:
            own = config.cross_encoders.get(name)
            weights = _weights_hash(own.folder) if own else GENERATORS[config.generation.model].revision
            libraries = [(package, package_version(package)) for package in RERANKING_LIBRARIES]
            computing = [libraries, run.dtype, run.deterministic, made_by.template_version]
            identities[name] = json.dumps([made_by.__name__, weights, own and own.max_tokens, *computing])
    return identities


def build_method(method: Method, seed: int) -> pipeline.Method:
    """A method of the pipeline, with its strategy's class and parameters; `seed` is the run's."""
    strategy = method.strategy
    if strategy is None:
        return pipeline.Method(method.source)
    params = _params(strategy, seed)
    make = functools.partial(STRATEGIES[strategy.kind], params=params)
    needs_similarity = getattr(params, "needs_similarity", False)
    return pipeline.Method(method.source, make, method.reranker, method.order, needs_similarity)


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


def chunk_tokenizers(config: Config) -> dict[str, Path]:
    """By key, the checkpoint folders whose tokenizers the index's chunks are read with: of each cross-encoder asked.

    A folder without `tokenizer.json` is left out: its cross-encoder tokenises the chunks' texts at every query.
    """
    folders = [config.cross_encoders[name].folder for name in _cross_encoders_of(config)]
    return {key: folder for folder in folders if (key := tokenizer_key(folder)) is not None}


def _cost_tokenizer(config: Config) -> str:
    """What tells the tokenizer that counts costs from any other."""
    server = config.generation.server
    if server is None:
        return str(GENERATORS[config.generation.model].revision)
    if server.tokenizer is None:
        return "utf-8 bytes"
    return hashlib.sha256((server.tokenizer / "tokenizer.json").read_bytes()).hexdigest()[:16]


def run_fingerprint(config: Config, dataset: Dataset) -> str:
    """Hash of what a row's numbers depend on.

    Names stand for code that can change under them, so what they stand for is hashed: the presets' values, the prompt
    as it renders, the versions of the stored formats and of the libraries that compute. Folders stand for the files in
    them.
    """
    prompt = PROMPTS[config.generation.prompt]
    parts = [
        settle(config).numbers,
        [m.strategy and dataclasses.asdict(_params(m.strategy, config.seed)) for m in config.methods.values()],
        [prompt("question", passages, language) for language in LANGUAGES for passages in (["passage"], None)],
        dataset.fingerprint,
        dataset.questions_fingerprint,
        EMBEDDERS[config.embedder].revision,
        GENERATORS[config.generation.model].revision,
        _cost_tokenizer(config),
        [
            (_weights_hash(config.cross_encoders[name].folder), package_version("FlagEmbedding"), TEMPLATE_VERSION)
            for name in _cross_encoders_of(config)
        ],
        [curve and dataclasses.asdict(curve) for curve in calibrations(config).values()],
        [ROW_SCHEMA_VERSION, INDEX_SCHEMA_VERSION, SCORE_DECIMALS],
        [package_version(package) for package in ("corag_ray", *COMPUTING_LIBRARIES)],
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def prepare_weights(config: Config) -> None:
    """Unpack the weights that a run needs, here and once, so that a missing package is one sentence before Ray starts.

    Raises:
        ConfigError: an unknown embedder, generator, prompt or reranker (the message suggests the nearest), a folder
            that is not there or holds code that is not allowed, or an exhaustive search of too many combinations.
        DataError: the file of the memo cannot be used.
        MissingModelError: a package of weights is not installed, or one of the paper's rerankers has no folder.
    """
    _look_up("prompt", config.generation.prompt, PROMPTS)
    _check_cross_encoders(config)
    if config.memo.path is not None:
        ScoreFile(config.memo.path).close()
    _check_exhaustive(config)
    _look_up("embedder", config.embedder, EMBEDDERS).folder()
    generator = _look_up("generator", config.generation.model, GENERATORS)
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
            ordered = _reranker_class(config, method.reranker).order_sensitive
            try:
                check_number(min(config.retrieval.num_candidates, params.num_candidates), params.max_chunks, ordered)
            except ConfigError as error:
                raise ConfigError(f"methods.{name}: {error}") from error


def describe(config: Config, name: str) -> dict[str, str]:
    """A method's settings by name, as text."""
    method = config.methods[name]
    told = {"method": name, "budget": f"{config.budget_tokens} tokens", "retrieval": config.retrieval.kind}
    if method.strategy is None:
        return told | {"source": method.source}
    params = {field: str(value) for field, value in dataclasses.asdict(_params(method.strategy, config.seed)).items()}
    return told | {"reranker": method.reranker, "strategy": method.strategy.kind, "order": method.order} | params


def _params(strategy: PlainStrategy | PolicyTreeStrategy, seed: int) -> Any:
    """A strategy's parameters; one that draws does so by the run's seed where the configuration gives it none."""
    if isinstance(strategy.params, RandomParams) and "seed" not in strategy.changes:
        return dataclasses.replace(strategy.params, seed=seed)
    return strategy.params


def _cross_encoders_of(config: Config) -> list[str]:
    return sorted(config.rerankers & set(config.cross_encoders))


def _paper_row(config: Config, name: str) -> PaperReranker | None:
    """The row that a cross-encoder names; None for one of the user's own."""
    model = config.cross_encoders[name].model
    return None if model is None else PAPER_RERANKERS[model]


def _may_run_code(config: Config, name: str) -> bool:
    """Whether a cross-encoder runs code; one that would, unallowed, is refused."""
    row = _paper_row(config, name)
    revision = config.remote_code.get(name if row is None else row.hub_id)
    return may_run_code(name, config.cross_encoders[name].folder, row, revision)


def _check_cross_encoders(config: Config) -> None:
    """Refuse cross-encoders that cannot be loaded, or may not be, before anything is."""
    for name in config.cross_encoders:
        if name in RERANKERS:
            raise ConfigError(
                f"cross_encoders: '{name}' is the name of a reranker that is there already; choose another."
            )
    for method_name, method in config.methods.items():
        name = method.reranker
        if name in PAPER_RERANKERS and name not in config.cross_encoders:
            raise MissingModelError(
                f"methods.{method_name}: the weights of '{name}' are not packaged: fetch "
                f"{PAPER_RERANKERS[name].hub_id} from the hub and name its folder, "
                f"`cross_encoders: {{{name}: {{model: {name}, folder: PATH}}}}`."
            )
        known = {**RERANKERS, **config.cross_encoders, **PAPER_RERANKERS}
        _look_up(f"reranker of methods.{method_name}", name, known)
    for name in _cross_encoders_of(config):
        _may_run_code(config, name)
        if not config.cross_encoders[name].folder.is_dir():
            raise ConfigError(f"cross_encoders: '{name}': there is no folder {config.cross_encoders[name].folder}.")


def _reranker_class(config: Config, name: str) -> Any:
    own = {name: CROSS_ENCODER for name in config.cross_encoders}
    module, _, class_name = _look_up("reranker", name, {**own, **RERANKERS}).partition(":")
    return getattr(importlib.import_module(module), class_name)


def _calibration(config: Config, name: str) -> Calibration | None:
    if name in config.cross_encoders:  # `jobs.fit_calibration` fits those that come with the package
        row = _paper_row(config, name)
        return None if row is None else row.output
    revisions = {
        "late_interaction": EMBEDDERS[config.embedder].revision,
        "pooled_embedding": EMBEDDERS[config.embedder].revision,
        "query_likelihood": GENERATORS[config.generation.model].revision,
    }
    return load_calibration(name, revisions.get(name))


def _build_reranker(config: Config, name: str, embedder: Embedder, index: OpenIndex) -> Reranker[Any]:
    """A reranker, loaded, with what its class takes."""
    made: Reranker[Any]
    make = functools.partial(_reranker_class(config, name), calibration=_calibration(config, name))
    match name:
        case "late_interaction":
            made = make(embedder, index.token_vectors)
        case "pooled_embedding":
            made = make(embedder, index.dense.vectors)
        case "bm25":
            made = make(index.lexical, index.store.total_cost / len(index.store))
        case "query_likelihood":
            made = make(_look_up("generator", config.generation.model, GENERATORS).folder(), compute(config))
        case _:
            made = build_cross_encoder(config, name, index)
    return made


def _stored_ids(folder: Path, index: OpenIndex) -> TokenIds | None:
    """The index's chunks as ids of a checkpoint's tokenizer; None where it was made without."""
    key = tokenizer_key(folder)
    if key is None or not holds_token_ids(index.folder, key):
        return None
    return open_token_ids(index.folder, key, len(index.store))


@functools.cache
def _weights_hash(folder: Path) -> str:
    """Hash of a checkpoint's files, by name and content, code at any depth; gigabytes are read once a process."""
    digest = hashlib.sha256()
    for path in sorted({path for path in (*folder.iterdir(), *folder.rglob("*.py")) if path.is_file()}):
        digest.update(path.relative_to(folder).as_posix().encode())
        with path.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


def _look_up(what: str, name: str, table: Mapping[str, Any]) -> Any:
    if name not in table:
        raise unknown_name(what, name, table)
    return table[name]
