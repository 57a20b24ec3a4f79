"""Cosines: against float64, rounded, and the same bits whatever threads numpy's BLAS is given."""

import subprocess
import sys

import numpy as np

from corag_ray.models.cosines import cosines, similarity

BITS = """
import hashlib
import numpy as np
from corag_ray.models.cosines import cosines
from corag_ray.models.pooled_embedding import PooledEmbedding
from corag_ray.models.torch_setup import Compute
from corag_ray.types import Chunk

Compute(threads=2, deterministic=True).apply()
vectors = np.random.default_rng(0).normal(size=(200, 384)).astype(np.float32)

class Embedder:
    def embed(self, texts):
        return vectors[:1]

chunks = [Chunk(n, "d", n, 0, 1, "t", 100 + n) for n in range(200)]
reranker = PooledEmbedding(Embedder(), lambda rows: vectors[list(rows)])
[score] = reranker.score([(reranker.prepare("q", chunks, range(200)), tuple(range(200)))])
print(hashlib.sha256(cosines(vectors, vectors).tobytes()).hexdigest(), score.raw)
"""


def unit_vectors(count, dim=5):
    vectors = np.random.default_rng(1).normal(size=(count, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_every_left_vector_meets_every_right_one_and_none_meets_none():
    left, right = unit_vectors(4), unit_vectors(3)
    expected = [[sum(float(x) * float(y) for x, y in zip(a, b, strict=True)) for b in right] for a in left]
    np.testing.assert_allclose(cosines(left, right), expected, atol=1e-6)
    assert cosines(left[:0], right).shape == (0, 3)
    assert similarity(left[:0], 3) == ()


def test_similarities_are_rounded_so_that_last_bits_make_no_difference():
    # Beside (1, 0), at .12349 and a ten-millionth more: both .123, and with each other 1.
    near = [(cosine, (1 - cosine**2) ** 0.5) for cosine in (0.1234900, 0.1234901)]
    vectors = np.array([(1.0, 0.0), *near], dtype=np.float32)
    assert cosines(vectors, vectors)[0, 1] != cosines(vectors, vectors)[0, 2]
    assert similarity(vectors, 3) == ((1.0, 0.123, 0.123), (0.123, 1.0, 1.0), (0.123, 1.0, 1.0))


def test_in_the_deterministic_mode_the_threads_that_numpy_is_given_change_no_bit():
    told = set()
    for threads in ("1", "2"):
        variables = {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run([sys.executable, "-c", BITS], env=variables, check=True, capture_output=True, text=True)
        told.add(done.stdout)
    assert len(told) == 1
