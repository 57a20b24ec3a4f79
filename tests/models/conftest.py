"""The packaged weights, each loaded once for the whole run and computing deterministically."""

import pytest

from corag_ray.models.packaged import MINILM, SMOLLM2
from corag_ray.models.torch_setup import Compute


@pytest.fixture(scope="session")
def embedder():
    from corag_ray.models.embedder import MeanPooledEmbedder

    return MeanPooledEmbedder(MINILM.folder(), Compute(threads=1, deterministic=True))


@pytest.fixture(scope="session")
def chat_tokenizer():
    from corag_ray.models.generator import ChatTokenizer

    return ChatTokenizer(SMOLLM2.folder(), "smollm2")


@pytest.fixture(scope="session")
def generator(chat_tokenizer):
    from corag_ray.models.generator import TransformersGenerator

    return TransformersGenerator(SMOLLM2.folder(), chat_tokenizer, Compute(threads=1, deterministic=True))
