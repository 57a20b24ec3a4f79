"""MaxSim by brute force, and what the reranker declares of itself."""

import hashlib
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag_ray.models.late_interaction import LateInteraction
from corag_ray.types import Chunk, Score


class Words:
    """A token vector a word, of length one and made of the word's hash."""

    dim, windowed = 16, 0

    def embed_with_tokens(self, texts):
        tokens = [np.array([vector_of(w) for w in t.split()], np.float32).reshape(-1, self.dim) for t in texts]
        return np.zeros((len(texts), self.dim), np.float32), tokens


def vector_of(word):
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")
    vector = np.random.default_rng(seed).normal(size=Words.dim)
    return vector / np.linalg.norm(vector)


def chunks_of(texts):
    return [Chunk(n, f"d{n}", 0, 0, len(text), text, 1) for n, text in enumerate(texts)]


def prepared(query, texts, reranker=None):
    return (reranker or LateInteraction(Words())).prepare(query, chunks_of(texts), range(len(texts)))


def max_sim(query, texts):
    """Mean over the query's words of the best cosine among all words of all texts."""
    words = [word for text in texts for word in text.split()]
    best = [max(float(vector_of(q) @ vector_of(w)) for w in words) for q in query.split()]
    return sum(best) / len(best)


TEXTS = ["tower metres high", "river", "iron tower paris", "metres metres", "history of paris and its river"]
QUERY = "how high paris tower"


@pytest.mark.parametrize("combination", [(0,), (3,), (2, 0), (0, 2), (1, 3, 4), (4, 3, 2, 1, 0)])
def test_a_score_is_the_mean_of_the_query_words_best_cosines(combination):
    [score] = LateInteraction(Words()).score([(prepared(QUERY, TEXTS), combination)])
    expected = max_sim(QUERY, [TEXTS[number] for number in combination])
    assert score.raw == pytest.approx(expected, abs=1e-6)
    assert score.calibrated == max(0.0, score.raw)


def test_a_querys_own_words_score_one_and_opposite_vectors_minus_one_calibrated_zero():
    [score] = LateInteraction(Words()).score([(prepared("high tower", ["tower so high"]), (0,))])
    assert score.raw == pytest.approx(1, abs=1e-6)
    opposite = np.array([[-1.0, -1.0]], np.float32)
    assert LateInteraction(Words()).score([(opposite, (0,))]) == [Score(-1.0, 0.0)]


def test_the_prepared_value_is_one_small_picklable_table():
    table = prepared(QUERY, TEXTS)
    assert table.shape == (5, 4)
    assert table.dtype == np.float32
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(table)), table)


maxima = st.integers(1, 6).flatmap(
    lambda candidates: st.lists(
        st.lists(st.floats(-1, 1, width=32), min_size=candidates, max_size=candidates), min_size=1, max_size=9
    ).map(lambda columns: np.array(columns, np.float32).T.copy())
)


def test_the_flags_say_order_blind_and_monotone():
    assert (LateInteraction.order_sensitive, LateInteraction.monotone) == (False, True)


@given(maxima, st.data())
def test_order_never_changes_a_score_as_declared(table, data):
    combination = data.draw(st.permutations(range(len(table))))[: data.draw(st.integers(1, len(table)))]
    other = data.draw(st.permutations(combination))
    one, two = LateInteraction(Words()).score([(table, tuple(combination)), (table, tuple(other))])
    assert one == two


@given(maxima, st.data())
def test_one_more_chunk_never_lowers_a_score_as_declared(table, data):
    combination = tuple(data.draw(st.permutations(range(len(table)))))
    scores = LateInteraction(Words()).score([(table, combination[:n]) for n in range(len(table) + 1)])
    assert [s.raw for s in scores] == sorted(s.raw for s in scores)
    assert [s.calibrated for s in scores] == sorted(s.calibrated for s in scores)


@given(st.lists(maxima, min_size=1, max_size=4), st.data())
def test_pairs_of_many_queries_and_sizes_in_one_call_score_as_alone(tables, data):
    pairs = []
    for _ in range(data.draw(st.integers(0, 12))):
        table = data.draw(st.sampled_from(tables))
        pairs.append((table, tuple(data.draw(st.permutations(range(len(table))))[: data.draw(st.integers(0, 6))])))
    reranker = LateInteraction(Words())
    together = reranker.score(pairs)
    assert together == [reranker.score([pair])[0] for pair in pairs]
    for (table, combination), score in zip(pairs, together, strict=True):
        if combination:
            best = [max(float(table[c][q]) for c in combination) for q in range(table.shape[1])]
            assert score.raw == pytest.approx(math.fsum(best) / len(best), abs=1e-9)


def test_no_pairs_give_no_scores_and_an_empty_combination_scores_minus_one():
    table = prepared(QUERY, TEXTS)
    assert LateInteraction(Words()).score([]) == []
    assert LateInteraction(Words()).score([(table, ()), (table, (0,))])[0] == Score(-1.0, 0.0)


def test_a_chunk_or_a_query_without_a_word_matches_nothing():
    reranker = LateInteraction(Words())
    table = prepared(QUERY, ["", "high tower"])
    assert reranker.score([(table, (0,))]) == [Score(-1.0, 0.0)]
    assert reranker.score([(table, (0, 1))]) == reranker.score([(table, (1,))])
    assert reranker.score([(prepared("", TEXTS), (0, 1))]) == [Score(-1.0, 0.0)]
    assert prepared(QUERY, []).shape[0] == 0


def test_stored_vectors_are_asked_for_by_store_row_and_agree_with_computed_ones():
    rows = [70, 12, 55, 9, 30]
    text_of = dict(zip(rows, TEXTS, strict=True))

    def stored(asked):  # as the index keeps them: float16
        return [Words().embed_with_tokens([text_of[row]])[1][0].astype(np.float16).astype(np.float32) for row in asked]

    reranker = LateInteraction(Words(), stored)
    # The chunks' texts are wrong on purpose: with stored vectors they are not read.
    table = reranker.prepare(QUERY, chunks_of(["unread"] * 5), rows)
    computed = prepared(QUERY, TEXTS)
    np.testing.assert_allclose(table, computed, atol=2e-3)
    assert not np.array_equal(table, computed)
    pairs = [(0,), (1, 4), (4, 2, 3)]
    for one, other in zip(
        reranker.score([(table, c) for c in pairs]), reranker.score([(computed, c) for c in pairs]), strict=True
    ):
        assert one.raw == pytest.approx(other.raw, abs=2e-3)


@pytest.mark.models
def test_float16_vectors_of_the_real_embedder_agree_with_computed_ones(embedder):
    texts = ["The Eiffel Tower is 330 metres high.", "Tea came to Britain in 1660.", "埃菲尔铁塔高330米。"]
    _, tokens = embedder.embed_with_tokens(texts)
    stored = LateInteraction(embedder, lambda rows: [tokens[r].astype(np.float16).astype(np.float32) for r in rows])
    computed = LateInteraction(embedder)
    query = "How high is the Eiffel Tower?"
    table = prepared(query, texts, computed)
    np.testing.assert_allclose(prepared(query, texts, stored), table, atol=2e-3)
    english, tea, _ = computed.score([(table, (n,)) for n in range(3)])
    assert 1 >= english.raw > tea.raw
