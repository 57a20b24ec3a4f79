"""Candidates without rows: what an index keeps of chunks is not read, and their texts give the same scores."""

import numpy as np
import pytest
import torch
from models import tiny_models

from corag_ray.models.combination_reranker import CombinationReranker
from corag_ray.models.cross_encoder import CrossEncoder
from corag_ray.models.late_interaction import LateInteraction
from corag_ray.models.pooled_embedding import PooledEmbedding
from corag_ray.models.set_head import HeadShape, SetHead
from corag_ray.models.torch_setup import Compute
from corag_ray.types import Chunk

WORDS = ["tower", "high", "paris", "iron"]
TEXTS = ["tower iron", "paris", "high tower paris"]
CHUNKS = [Chunk(n, f"d{n}", 0, 0, len(text), text, 3) for n, text in enumerate(TEXTS)]
COMBINATIONS = [(0,), (2, 1), (1, 0, 2)]


class Vectors:
    """A unit vector a word; a text's vector is the first of its words'."""

    dim, windowed = 8, 0

    def embed_with_tokens(self, texts):
        vectors = np.random.default_rng(2).normal(size=(len(WORDS), 8)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        tokens = [np.array([vectors[WORDS.index(word)] for word in text.split()]) for text in texts]
        return np.stack([own[0] for own in tokens]), tokens

    def embed(self, texts):
        return self.embed_with_tokens(texts)[0]


def never(rows):
    raise AssertionError("the index was read for candidates that are not of it")


def head():
    torch.manual_seed(0)
    return SetHead(HeadShape(Vectors.dim)).eval()


def late_interaction(folder):
    return LateInteraction(Vectors(), never), LateInteraction(Vectors())


def combination(folder):
    compute = Compute(threads=1)
    return CombinationReranker(Vectors(), never, head(), compute), CombinationReranker(Vectors(), None, head(), compute)


def pooled_embedding(folder):
    return PooledEmbedding(Vectors(), never), PooledEmbedding(Vectors(), lambda rows: Vectors().embed(TEXTS))


def cross_encoder(folder):
    compute = Compute(threads=1)
    return CrossEncoder(folder, "t", 64, compute, stored=lambda key: never), CrossEncoder(folder, "t", 64, compute)


@pytest.mark.parametrize("make", [late_interaction, combination, pooled_embedding, cross_encoder])
def test_the_scores_are_those_of_the_texts(make, tmp_path):
    with_index, without = make(tiny_models.bert(tmp_path / "bert") if make is cross_encoder else None)
    prepared = with_index.prepare("tower high", CHUNKS, None)
    expected = without.prepare("tower high", CHUNKS, range(3))
    found = with_index.score([(prepared, chosen) for chosen in COMBINATIONS])
    assert found == without.score([(expected, chosen) for chosen in COMBINATIONS])
