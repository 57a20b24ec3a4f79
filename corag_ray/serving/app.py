"""The application's builder, which `serve_config.yaml` names: from its `args` to the deployments, bound together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ray import serve
from ray.serve import Application

from corag_ray.batch.index_folder import ensure_index, open_corpus
from corag_ray.build import embedding_dim
from corag_ray.config import Config, Method, PlainStrategy
from corag_ray.identity import index_spec
from corag_ray.indexing.versions import IndexSpec
from corag_ray.models.agent import Configuration
from corag_ray.prepare import prepare_weights
from corag_ray.serving.deployments.agent import AgentReplica
from corag_ray.serving.deployments.driver import DriverReplica
from corag_ray.serving.deployments.embedder import EmbedderReplica
from corag_ray.serving.deployments.explanations import ExplanationStore
from corag_ray.serving.deployments.generator import GeneratorReplica
from corag_ray.serving.deployments.index import IndexReplica
from corag_ray.serving.deployments.ingress import IngressReplica
from corag_ray.serving.deployments.reranker import RerankerReplica
from corag_ray.serving.options import options_of, with_threads
from corag_ray.serving.settings import Scale, ServingSettings, read_settings
from corag_ray.settling import settle


def build(args: dict[str, Any]) -> Application:
    """The application, over an index that is made now if it is not there.

    Raises:
        ConfigError: `args` hold an unknown key or a bad value, or name what does not exist.
        MissingModelError: weights are not there.
        DataError: corpus or index cannot be used.
    """
    settings = read_settings(args)
    config = asking_for(settings.config, list(settings.pools))
    prepare_weights(config)
    dataset, folder = open_corpus(settings.index.root, config, questions=False)
    config = settle(config)
    ensure_index(config, dataset, folder)
    return compose(settings, config, folder.resolve(), index_spec(config, dataset))


def asking_for(config: Config, rerankers: list[str]) -> Config:
    """The configuration whose methods ask all these rerankers, so that whatever a reranker needs is prepared.

    The methods that are added for it have names that no configuration can write, and are never run.
    """
    ranked = PlainStrategy(kind="ranked")
    added = {f"({name})": Method(strategy=ranked, reranker=name) for name in rerankers}
    return config.model_copy(update={"methods": {**config.methods, **added}})


def compose(settings: ServingSettings, config: Config, folder: Path, spec: IndexSpec) -> Application:
    """The deployments over a finished index; `config` is the settled one, which asks for every pool's reranker."""
    scales = settings.deployments
    dim = embedding_dim(config)
    embedder = _deployed(EmbedderReplica, "embedder", scales.embedder).bind(with_threads(config, scales.embedder))
    index = _deployed(IndexReplica, "index", scales.index).bind(
        with_threads(config, scales.index), folder, spec, dim, embedder
    )
    agent = _deployed(AgentReplica, "agent", scales.agent).bind(Configuration(settings.agent.method))
    rerankers = {
        name: _deployed(RerankerReplica, f"reranker_{name}", scale).bind(
            *(with_threads(config, scale), name, folder, spec, dim, embedder),
            batch_pairs=scale.batch_pairs,
            most_waiting_pairs=scale.waiting_pairs,
        )
        for name, scale in settings.pools.items()
    }
    driver = _deployed(DriverReplica, "driver", scales.driver).bind(
        *(with_threads(config, scales.driver), settings.pools, settings.standing_in, settings.http.max_pairs, dim),
        *(embedder, index, agent, rerankers),
    )
    generator = None
    if config.generation.enabled:
        generator = _deployed(GeneratorReplica, "generator", scales.generator).bind(
            with_threads(config, scales.generator)
        )
    kept = settings.explanations
    explanations = _deployed(ExplanationStore, "explanations", scales.explanations).bind(kept.most, kept.most_bytes)
    return _deployed(IngressReplica, "ingress", scales.ingress).bind(settings, driver, generator, explanations)


def _deployed(replica: type, name: str, scale: Scale) -> Any:
    return serve.deployment(replica).options(**options_of(name, scale))
