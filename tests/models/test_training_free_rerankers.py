"""Pooled embedding and BM25 of a combination, by hand and by brute force; and what they declare of themselves."""

import math
import pickle
import random

import numpy as np
import pytest

from corag_ray.models.bm25_combination import BM25Combination
from corag_ray.models.lexical import LexicalIndex
from corag_ray.models.pooled_embedding import PooledEmbedding
from corag_ray.types import Chunk

TEXTS = ["tower tower paris", "river in paris", "iron", "tea of the hills and more tea", "high tower"]
COSTS = [4, 3, 1, 8, 2]
CHUNKS = [Chunk(n, f"d{n}", 0, 0, len(t), t, cost) for n, (t, cost) in enumerate(zip(TEXTS, COSTS, strict=True))]
VECTORS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)
ASKED = np.array([0.6, 0.0, 0.8], dtype=np.float32)


class OneVector:
    """Every query has the same vector."""

    dim, windowed = 3, 0

    def embed(self, texts):
        return np.tile(ASKED, (len(texts), 1))


def pooled():
    return PooledEmbedding(OneVector(), lambda rows: VECTORS[list(rows)])


def bm25():
    return BM25Combination(LexicalIndex.build(TEXTS, np.arange(5, dtype=np.uint64)), sum(COSTS) / 5)


RERANKERS = {"pooled": pooled, "bm25": bm25}


def score(reranker, combination, query="high tower in paris"):
    prepared = pickle.loads(pickle.dumps(reranker.prepare(query, CHUNKS, range(5))))
    [found] = reranker.score([(prepared, combination)])
    return found


@pytest.mark.parametrize("combination", [(0,), (3, 1), (4, 2, 0, 1)])
def test_pooled_is_the_cosine_with_the_token_weighted_mean(combination):
    mean = sum(COSTS[n] * VECTORS[n] for n in combination)
    expected = float(ASKED @ mean / np.linalg.norm(mean))
    found = score(pooled(), combination)
    assert found.raw == pytest.approx(expected, abs=1e-6)
    assert found.calibrated == pytest.approx(max(0.0, expected), abs=1e-6)


def test_bm25_by_hand():
    # 5 chunks of 3.6 tokens on average; tower stands in 2 of them, paris in 2. Chunks 0 and 4 together: 6 tokens.
    rarity = math.log(1 + 3.5 / 2.5)
    length = 1.5 * (0.25 + 0.75 * 6 / 3.6)
    expected = rarity * 3 / (length + 3) + rarity * 1 / (length + 1)
    found = score(bm25(), (0, 4), "tower paris")
    assert found.raw == pytest.approx(expected, rel=1e-5)
    assert found.calibrated == pytest.approx(expected / (2 * rarity), rel=1e-5)


def test_a_single_chunk_is_scored_as_the_first_stage_scores_it_where_lengths_agree():
    texts = ["tower paris", "river paris", "iron tea"]
    index = LexicalIndex.build(texts, np.arange(3, dtype=np.uint64))
    chunks = [Chunk(n, "d", n, 0, 1, t, 2) for n, t in enumerate(texts)]
    reranker = BM25Combination(index, 2.0)
    prepared = reranker.prepare("paris tower", chunks, range(3))
    hits = dict(index.search(["paris tower"], 3)[0])
    found = reranker.score([(prepared, (row,)) for row in hits])
    assert [s.raw for s in found] == pytest.approx(list(hits.values()), rel=1e-5)


@pytest.mark.parametrize("name", RERANKERS)
def test_blind_to_order_not_monotone_and_within_its_range(name):
    reranker = RERANKERS[name]()
    assert (reranker.order_sensitive, reranker.monotone) == (False, False)
    chance, lowered = random.Random(1), False
    for _ in range(200):
        combination = tuple(chance.sample(range(5), chance.randint(2, 5)))
        found = score(reranker, combination)
        assert found == score(reranker, tuple(sorted(combination)))
        assert 0 <= found.calibrated <= 1
        lowered |= found.raw < score(reranker, combination[:-1]).raw - 1e-6
    assert lowered


@pytest.mark.parametrize("name", RERANKERS)
def test_an_empty_combination_and_a_query_of_no_terms_score_zero(name):
    assert score(RERANKERS[name](), ()).raw == 0.0
    if name == "bm25":
        assert score(bm25(), (0,), "???") == score(bm25(), (), "tower")
