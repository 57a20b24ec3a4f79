"""Exact dense search against numpy, and the hybrid of two rankings."""

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag_ray.models.index import FUSION_DEPTH, DenseIndex, HybridIndex


class Given:
    """A query is the number of a given vector."""

    windowed = 0

    def __init__(self, vectors):
        self.vectors, self.dim = np.asarray(vectors, dtype=np.float32), np.asarray(vectors).shape[-1]

    def embed(self, texts):
        return self.vectors[[int(text) for text in texts]].reshape(-1, self.dim)


def dense(vectors, ids, queries):
    index = DenseIndex.build(len(queries[0]))
    if len(vectors):
        index.add(np.asarray(vectors, dtype=np.float32))
    return DenseIndex(index, np.array(ids, np.uint64), Given(queries))


def by_numpy(vectors, ids, query, k):
    scores = np.asarray(vectors, dtype=np.float64).reshape(-1, len(query)) @ np.asarray(query, dtype=np.float64)
    order = sorted(range(len(vectors)), key=lambda row: (-scores[row], ids[row]))
    return [(row, scores[row]) for row in order[:k]]


small = st.lists(st.integers(-1, 1), min_size=2, max_size=2)
"""Few distinct vectors with exact products, so that many rows tie."""


@given(st.lists(small, max_size=90), small, st.integers(0, 100), st.randoms(use_true_random=False))
def test_dense_search_among_ties_equals_numpy_in_values_and_ids(vectors, query, k, source):
    ids = [(1 << 63) + n for n in range(len(vectors))]
    source.shuffle(ids)
    assert dense(vectors, ids, [query]).search(["0"], k) == [by_numpy(vectors, ids, query, k)]


@pytest.fixture(scope="module")
def unit():
    source = np.random.default_rng(3)
    vectors = source.normal(size=(500, 48)).astype(np.float32)
    vectors[100:140] = vectors[7]  # duplicates, more of them than the index fetches past k
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries = source.normal(size=(9, 48)).astype(np.float32)
    queries[0] = vectors[7]
    return vectors, source.permutation(500).astype(np.uint64) + (1 << 63), queries


def test_dense_search_of_real_vectors_equals_numpy_in_values_and_ids(unit):
    vectors, ids, queries = unit
    for query, found in zip(queries, dense(vectors, ids, queries).search([str(q) for q in range(9)], 60), strict=True):
        expected = by_numpy(vectors, ids, query, 60)
        assert [row for row, _ in found] == [row for row, _ in expected]
        np.testing.assert_allclose([s for _, s in found], [s for _, s in expected], rtol=1e-5, atol=1e-6)


def test_a_smaller_k_gives_a_prefix_to_the_last_bit(unit):
    vectors, ids, queries = unit
    index = dense(vectors, ids, queries)
    for query in ("0", "1"):
        [everything] = index.search([query], 500)
        assert len(everything) == 500
        for k in range(1, 500):
            assert index.search([query], k) == [everything[:k]]


def test_a_querys_numbers_do_not_depend_on_its_company(unit):
    vectors, ids, queries = unit
    index = dense(vectors, ids, queries)
    many = [str(n % 9) for n in range(64)]
    assert index.search(many, 20) == [index.search([query], 20)[0] for query in many]


def test_k_above_the_size_gives_every_row_and_an_empty_index_none():
    assert dense([[1, 0], [0, 1]], [9, 8], [[2, 1]]).search(["0"], 50) == [[(0, 2.0), (1, 1.0)]]
    assert dense([], [], [[2, 1]]).search(["0", "0"], 5) == [[], []]
    assert dense([[1, 0]], [9], [[2, 1]]).search([], 5) == []


def test_a_query_that_is_no_number_finds_nothing_rather_than_row_minus_one():
    assert dense([[1, 0]] * 3, [1, 2, 3], [[np.nan, 0]]).search(["0"], 2) == [[]]


def test_a_saved_index_answers_as_before(tmp_path, unit):
    vectors, ids, queries = unit
    index = DenseIndex.build(48)
    index.add(vectors[:200])
    index.add(vectors[200:])
    faiss.write_index(index, str(tmp_path / "dense.faiss"))
    loaded = DenseIndex.load(tmp_path / "dense.faiss", ids, Given(queries))
    assert loaded.search(["1", "0"], 33) == dense(vectors, ids, queries).search(["1", "0"], 33)


class Ranked:
    """A first stage that knows its ranking."""

    def __init__(self, *rows):
        self.rows = rows

    def search(self, queries, k):
        return [[(row, -float(rank)) for rank, row in enumerate(self.rows[:k])] for _ in queries]


def test_the_hybrid_fuses_both_rankings_of_each_query():
    ids = np.arange(10, dtype=np.uint64)
    hybrid = HybridIndex(Ranked(4, 2), Ranked(2, 9), ids)
    once = [(2, pytest.approx(1 / 62 + 1 / 61)), (4, pytest.approx(1 / 61)), (9, pytest.approx(1 / 62))]
    assert hybrid.search(["a", "b"], 5) == [once, once]
    assert hybrid.search([], 5) == []


def test_a_hybrid_ranking_has_the_same_prefix_whatever_k():
    # 400 rows in opposite orders: what a short list hides of the other would change the fused order.
    source = np.random.default_rng(5)
    first, second = source.permutation(400).tolist(), source.permutation(400).tolist()
    hybrid = HybridIndex(Ranked(*first), Ranked(*second), np.arange(400, dtype=np.uint64))
    [everything] = hybrid.search(["q"], 400)
    assert len(everything) == 400
    assert all(hybrid.search(["q"], k) == [everything[:k]] for k in range(1, 400))


def test_the_hybrid_reads_a_fixed_depth_of_each_list():
    rows = range(FUSION_DEPTH + 5)
    hybrid = HybridIndex(Ranked(*rows), Ranked(), np.arange(len(rows), dtype=np.uint64))
    assert len(hybrid.search(["q"], 10**6)[0]) == FUSION_DEPTH
