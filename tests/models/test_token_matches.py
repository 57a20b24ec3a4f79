"""The nearest token of each chunk, by brute force."""

import numpy as np
import pytest

from corag_ray.models.token_matches import match_tokens


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


@pytest.fixture
def pieces():
    """A query of three pieces, and chunks of four, none and one."""
    draw = np.random.default_rng(5)
    return unit(draw.normal(size=(3, 6))), [unit(draw.normal(size=(n, 6))) for n in (4, 0, 1)]


def test_each_query_piece_stands_beside_its_nearest_of_each_chunk_and_their_cosine(pieces):
    query, chunks = pieces
    found = match_tokens(query, chunks)
    assert (found.query.shape, found.nearest.shape, found.cosines.shape) == ((4, 6), (3, 4, 6), (3, 4))
    for place, vector in enumerate(query, start=1):
        np.testing.assert_array_equal(found.query[place], vector)
        for number in (0, 2):
            cosines = [float(vector @ other) for other in chunks[number]]
            np.testing.assert_array_equal(found.nearest[number, place], chunks[number][int(np.argmax(cosines))])
            assert found.cosines[number, place] == pytest.approx(max(cosines), abs=1e-6)


def test_token_0_is_the_mean_of_the_query_beside_the_mean_of_each_chunk(pieces):
    query, chunks = pieces
    found = match_tokens(query, chunks)
    np.testing.assert_allclose(found.query[0], unit(query.mean(axis=0)), atol=1e-6)
    np.testing.assert_allclose(found.nearest[0, 0], unit(chunks[0].mean(axis=0)), atol=1e-6)
    assert found.cosines[0, 0] == pytest.approx(float(found.query[0] @ found.nearest[0, 0]), abs=1e-6)
    np.testing.assert_allclose(found.nearest[2, 0], chunks[2][0], atol=1e-6)


def test_a_chunk_or_a_query_without_a_piece_is_zeros(pieces):
    query, chunks = pieces
    found = match_tokens(query, chunks)
    assert not found.nearest[1].any()
    assert not found.cosines[1].any()
    empty = match_tokens(query[:0], chunks)
    assert (empty.query.shape, empty.nearest.shape) == ((1, 6), (3, 1, 6))
    assert not empty.query.any()
    assert not empty.cosines.any()
    assert match_tokens(query, []).nearest.shape == (0, 4, 6)


def test_the_first_of_pieces_that_are_as_near_but_for_their_last_bits_is_taken():
    query = np.array([[1, 0]], np.float32)
    near = np.array([[0.9, np.sqrt(0.19)], [0.90000004, -np.sqrt(0.19)]], np.float32)
    np.testing.assert_array_equal(match_tokens(query, [near]).nearest[0, 1], near[0])


def test_a_chunks_matches_do_not_depend_on_its_company(pieces):
    query, chunks = pieces
    alone, together = match_tokens(query, chunks[:1]), match_tokens(query, chunks)
    np.testing.assert_allclose(alone.nearest[0], together.nearest[0], atol=1e-6)
    np.testing.assert_allclose(alone.cosines[0], together.cosines[0], atol=1e-6)


def test_numbers_that_are_none_stay_with_their_chunk(pieces):
    query, chunks = pieces
    broken = match_tokens(query, [chunks[0], np.full((2, 6), np.nan, np.float32)])
    whole = match_tokens(query, chunks[:1])
    np.testing.assert_array_equal(broken.nearest[0], whole.nearest[0])
    assert np.isnan(broken.nearest[1]).all()


def test_as_float16_the_numbers_are_the_same_but_for_rounding(pieces):
    found = match_tokens(*pieces)
    stored = found.as_type(np.float16)
    assert stored.nearest.dtype == np.float16
    np.testing.assert_allclose(stored.as_type(np.float32).nearest, found.nearest, atol=1e-3)
