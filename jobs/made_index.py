"""The index of a data set, which most jobs draw their candidates from."""

from __future__ import annotations

from pathlib import Path

from corag_ray.batch.index_folder import ensure_index
from corag_ray.config import Config
from corag_ray.datasets.assemble import Dataset
from corag_ray.identity import index_spec
from corag_ray.indexing.open_index import OpenIndex, open_index
from corag_ray.models.protocols import Embedder


def made_index(config: Config, dataset: Dataset, folder: Path, embedder: Embedder) -> OpenIndex:
    """The index in a folder, made first where it is missing."""
    ensure_index(config, dataset, folder)
    return open_index(folder, index_spec(config, dataset), embedder, config.retrieval.kind)
