"""Token vectors in few bytes: the way there and back, the size, and scores as from full ones."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from tiny_index import DIM, SPEC, Hashes, build, vector_of

from corag_ray.errors import ConfigError, DataError
from corag_ray.indexing.merge import TOKEN_VECTORS
from corag_ray.indexing.open_index import open_index
from corag_ray.indexing.token_vectors import TokenVectorFormat, decoded
from corag_ray.indexing.versions import current_version, read_manifest
from corag_ray.models.embedder import MeanPooledEmbedder
from corag_ray.models.late_interaction import LateInteraction
from corag_ray.models.packaged import MINILM
from corag_ray.models.torch_setup import Compute
from corag_ray.types import Document

INT8 = replace(SPEC, token_vectors=TokenVectorFormat("int8", up_to_mb=100))
BEFORE = [Document("a", "tea salt iron sea bridge"), Document("b", "tower clock"), Document("c", "ferry stone river")]
AFTER = [Document("c", "ferry stone river"), Document("d", "stone"), Document("a", "tea salt iron sea tower")]
PIECES = {"before": 10, "after": 9}
"""Words of each corpus."""


def test_int8_counts_127ths_and_comes_back_as_unit_vectors():
    # 0.6 x 127 = 76.2 and 0.8 x 127 = 101.6; (76, 102) has the length sqrt(5776 + 10404) = 127.2006.
    kept = TokenVectorFormat("int8").encoded(np.array([[0.6, -0.8], [0, 1], [0, 0]], dtype=np.float32))
    assert kept.dtype == np.int8
    assert kept.tolist() == [[76, -102], [0, 127], [0, 0]]
    back = decoded(kept)
    assert back.dtype == np.float32
    np.testing.assert_allclose(back, [[76 / 127.2006, -102 / 127.2006], [0, 1], [0, 0]], atol=1e-6)


def test_float16_comes_back_as_it_is_without_being_scaled():
    kept = TokenVectorFormat().encoded(np.array([[0.1, 0.5]], dtype=np.float32))
    assert kept.dtype == np.float16
    assert decoded(kept).tolist() == [[float(np.float16(0.1)), 0.5]]


def test_a_limit_counts_the_bytes_of_its_type_so_int8_keeps_twice_the_tokens():
    # 1 MB: 500,000 numbers of two bytes, a million of one.
    for dtype, most in (("float16", 5000), ("int8", 10_000)):
        limit = TokenVectorFormat(dtype, up_to_mb=1)
        assert limit.fits(most, 100)
        assert not limit.fits(most + 1, 100)
    assert not TokenVectorFormat(up_to_mb=0).fits(1, 1)
    with pytest.raises(ConfigError, match=r"token_vectors\.up_to_mb must be at least 0, not -1"):
        TokenVectorFormat(up_to_mb=-1)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_the_manifest_and_the_file_say_which_type_is_stored(tmp_path, dtype):
    spec = replace(SPEC, token_vectors=TokenVectorFormat(dtype, up_to_mb=100))
    build(tmp_path, BEFORE, spec)
    manifest = read_manifest(tmp_path)
    assert manifest["token_vectors"] == asdict(spec.token_vectors) == {"dtype": dtype, "up_to_mb": 100}
    assert manifest["token_vectors_stored"] is True
    stored = np.load(current_version(tmp_path) / TOKEN_VECTORS)
    assert (stored.dtype, stored.shape) == (np.dtype(dtype), (PIECES["before"], DIM))


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_scores_from_stored_vectors_are_those_of_full_ones_within_a_hundredth(tmp_path, dtype):
    words = [f"w{n}" for n in range(300)]
    documents = [Document(f"d{n}", " ".join(words[n : n + 3])) for n in range(0, 300, 3)]
    spec = replace(SPEC, token_vectors=TokenVectorFormat(dtype, up_to_mb=100))
    build(tmp_path, documents, spec)
    index = open_index(tmp_path, spec, Hashes(), "dense")
    query, singles = "w3 w100 w299 tea", [(row,) for row in range(100)]
    chunks = index.store.take(range(100))
    scores = []
    for stored in (None, index.token_vectors):
        reranker = LateInteraction(Hashes(), stored)
        prepared = reranker.prepare(query, chunks, range(100))
        scores.append([score.raw for score in reranker.score([(prepared, single) for single in singles])])
    np.testing.assert_allclose(scores[1], scores[0], atol=0.01)
    assert scores[1] != scores[0]  # they do come from what is stored


@pytest.mark.models
def test_minilms_scores_from_int8_are_those_of_full_vectors_within_a_hundredth():
    embedder = MeanPooledEmbedder(MINILM.folder(), Compute(threads=1, deterministic=True))
    texts = ["The tower is 330 metres high.", "Tea came to Britain in the 1660s.", "茶叶在十七世纪传入英国。"]
    _, [query] = embedder.embed_with_tokens(["How high is the tower?"])
    _, chunks = embedder.embed_with_tokens(texts)
    int8 = TokenVectorFormat("int8")
    for vectors in chunks:
        full, kept = ((query @ of.T).max(axis=1).mean() for of in (vectors, decoded(int8.encoded(vectors))))
        assert kept == pytest.approx(full, abs=0.01)


@pytest.mark.parametrize("spec", [SPEC, INT8], ids=["float16", "int8"])
def test_an_index_of_the_other_type_is_refused_by_name(tmp_path, spec):
    build(tmp_path, BEFORE, spec)
    other = INT8 if spec is SPEC else SPEC
    wanted = rf"made with token_vectors = .*{spec.token_vectors.dtype}.*not .*{other.token_vectors.dtype}"
    with pytest.raises(DataError, match=wanted):
        open_index(tmp_path, other, Hashes(), "dense")
    with pytest.raises(DataError, match=wanted):
        build(tmp_path, AFTER, replace(other, corpus="after"))


def test_a_file_of_the_other_type_is_damage(tmp_path):
    build(tmp_path, BEFORE, INT8)
    path = current_version(tmp_path) / TOKEN_VECTORS
    np.save(path, np.load(path).astype(np.float16))
    with pytest.raises(DataError, match=r"is damaged, delete that folder: token_vectors\.npy does not belong"):
        open_index(tmp_path, INT8, Hashes(), "dense")


def test_an_update_keeps_int8_vectors_of_unchanged_chunks_and_equals_a_fresh_build(tmp_path):
    embedder, after = Hashes(), replace(INT8, corpus="after")
    build(tmp_path / "updated", BEFORE, INT8)
    build(tmp_path / "updated", AFTER, after, embedder)
    build(tmp_path / "fresh", AFTER, after)
    assert embedder.embedded == ["stone", "sea tower"]
    made = [(current_version(tmp_path / name) / TOKEN_VECTORS).read_bytes() for name in ("updated", "fresh")]
    assert made[0] == made[1]
    [first] = open_index(tmp_path / "updated", after, Hashes(), "dense").token_vectors([0])
    expected = np.stack([vector_of(word) for word in ("ferry", "stone", "river")])
    np.testing.assert_allclose(first, expected, atol=1 / 127)
