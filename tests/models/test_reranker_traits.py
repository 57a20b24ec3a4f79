"""What every reranker declares of order and monotony holds on random inputs; where it declares the risk, it is real."""

import itertools
import math
import random

import numpy as np
import pytest
import torch
from models import tiny_models

from corag_ray.models.bm25_combination import BM25Combination
from corag_ray.models.calibration import Calibration
from corag_ray.models.combination_reranker import CombinationReranker
from corag_ray.models.cross_encoder import CrossEncoder
from corag_ray.models.late_interaction import LateInteraction
from corag_ray.models.lexical import LexicalIndex
from corag_ray.models.packaged import SMOLLM2
from corag_ray.models.pooled_embedding import PooledEmbedding
from corag_ray.models.query_likelihood import QueryLikelihood
from corag_ray.models.set_head import HeadShape, SetHead
from corag_ray.models.torch_setup import Compute
from corag_ray.types import Chunk

WORDS = ["tower", "high", "paris", "iron", "river", "tea", "hills", "history", "metre", "world", "light", "sugar"]
WORD_VECTORS = np.random.default_rng(2).normal(size=(len(WORDS), 8))
WORD_VECTORS /= np.linalg.norm(WORD_VECTORS, axis=1, keepdims=True)
CURVE = Calibration(3.0, -1.0, 7)
SAME = 1e-6
"""Scores nearer than this are one: sums of floats in another order."""


class RandomVectors:
    """A random unit vector a word; a text's vector is the first of its words'."""

    dim, windowed = 8, 0

    def embed_with_tokens(self, texts):
        tokens = [np.array([WORD_VECTORS[WORDS.index(word)] for word in text.split()], np.float32) for text in texts]
        return np.stack([vectors[0] for vectors in tokens]), tokens

    def embed(self, texts):
        return self.embed_with_tokens(texts)[0]


def corpus(chance):
    """Six chunks of two to nine words; a word in three makes a token more."""
    texts = [" ".join(chance.choices(WORDS, k=chance.randint(2, 9))) for _ in range(6)]
    return [Chunk(n, f"d{n}", 0, 0, len(t), t, 1 + len(t) // 4) for n, t in enumerate(texts)]


def late_interaction(chunks, folder, calibration):
    return LateInteraction(RandomVectors(), calibration=calibration)


def pooled_embedding(chunks, folder, calibration):
    vectors = RandomVectors().embed([chunk.text for chunk in chunks])
    return PooledEmbedding(RandomVectors(), lambda rows: vectors[list(rows)], calibration)


def bm25(chunks, folder, calibration):
    index = LexicalIndex.build([chunk.text for chunk in chunks], np.arange(len(chunks), dtype=np.uint64))
    return BM25Combination(index, sum(chunk.cost for chunk in chunks) / len(chunks), calibration)


def cross_encoder(chunks, folder, calibration):
    return CrossEncoder(folder, "tiny", 128, Compute(threads=1), calibration)


def combination(chunks, folder, calibration):
    torch.manual_seed(0)
    head = SetHead(HeadShape(RandomVectors.dim)).eval()
    return CombinationReranker(RandomVectors(), None, head, Compute(threads=1), calibration)


def query_likelihood(chunks, folder, calibration):
    return QueryLikelihood(SMOLLM2.folder(), Compute(threads=1), calibration=calibration)


MAKERS = [
    pytest.param(late_interaction, False, True, 40),
    pytest.param(pooled_embedding, False, False, 40),
    pytest.param(bm25, False, False, 40),
    pytest.param(cross_encoder, True, False, 4),
    pytest.param(combination, True, False, 40),
    pytest.param(query_likelihood, True, False, 2, marks=pytest.mark.models),
]
traits = pytest.mark.parametrize(("make", "order_sensitive", "monotone", "corpora"), MAKERS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.bert(tmp_path_factory.mktemp("bert"))


def growing(make, folder, corpora, calibration=None):
    """The reranker and, by corpus, random combinations that grow by one chunk, each with its scores in two orders."""
    chance, found, reranker = random.Random(0), [], None
    for _ in range(corpora):
        chunks = corpus(chance)
        if reranker is None or make in (pooled_embedding, bm25):  # the others know no corpus
            reranker = make(chunks, folder, calibration)
        prepared = reranker.prepare(" ".join(chance.sample(WORDS, 3)), chunks, range(len(chunks)))
        order = chance.sample(range(len(chunks)), 4)
        combinations = [tuple(order[:n]) for n in range(1, 5)]
        turned = [combination[::-1] for combination in combinations]
        scores = reranker.score([(prepared, c) for c in combinations + turned])
        found.append((scores[:4], scores[4:]))
    return reranker, found


@traits
def test_order_changes_a_score_where_declared_and_never_elsewhere(make, order_sensitive, monotone, corpora, folder):
    reranker, found = growing(make, folder, corpora)
    differences = [abs(a.raw - b.raw) for one, other in found for a, b in zip(one[1:], other[1:], strict=True)]
    assert reranker.order_sensitive is order_sensitive
    assert (max(differences) > SAME) is order_sensitive


@traits
def test_a_chunk_more_lowers_a_score_where_declared_and_never_elsewhere(
    make, order_sensitive, monotone, corpora, folder
):
    reranker, found = growing(make, folder, corpora)
    steps = [b.raw - a.raw for one, _ in found for a, b in itertools.pairwise(one)]
    assert reranker.monotone is monotone
    assert max(steps) > SAME  # a score that never moves would be monotone without meaning it
    assert (min(steps) >= -SAME) is monotone


@traits
def test_a_calibration_changes_the_calibrated_value_alone(make, order_sensitive, monotone, corpora, folder):
    _, scores = growing(make, folder, 2)
    _, same = growing(make, folder, 2, CURVE)
    for (one, _), (other, _) in zip(scores, same, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.raw == b.raw
            read = a.calibrated if make is bm25 else a.raw  # bm25's curve reads the share
            assert b.calibrated == pytest.approx(CURVE.calibrated(read), abs=1e-12)
            assert 0 <= a.calibrated <= 1


@traits
@pytest.mark.parametrize("calibration", [None, CURVE])
def test_a_memoised_reranker_calibrates_a_raw_score_as_it_does_when_scoring(
    make, order_sensitive, monotone, corpora, folder, calibration
):
    reranker, found = growing(make, folder, 1, calibration)
    assert reranker.memoised is (make in (cross_encoder, query_likelihood))
    if reranker.memoised:
        scores = [score for both in found for half in both for score in half]
        assert [reranker.calibrated(score.raw) for score in scores] == [score.calibrated for score in scores]
        assert math.isnan(reranker.calibrated(math.nan))
