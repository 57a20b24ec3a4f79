"""BM25: what a term is, and scores worked by Lucene's formula."""

import math

import numpy as np
import pytest

from corag_ray.models.lexical import LexicalIndex, terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Tea, 茶葉史 in 1660!", ["tea", "茶葉", "葉史", "in", "1660"]),
        ("茶", ["茶"]),
        ("a茶b", ["a", "茶", "b"]),
        ("北京很大。上海", ["北京", "京很", "很大", "上海"]),
        ("ชาไทย", ["ชา", "าไ", "ไท", "ทย"]),
        ("コーヒー", ["コー", "ーヒ", "ヒー"]),
        ("Café cafe\u0301", ["café", "café"]),  # composed or not, one spelling; the accent stays
        ("¿Qué año?", ["qué", "año"]),
        ("3.14 2nd x_1", ["3", "14", "2nd", "x_1"]),
        ("ﬁn １２", ["fin", "12"]),  # a ligature and full-width digits
        ("Straße ΑΘΗΝΑ Москва", ["straße", "αθηνα", "москва"]),
        ("हिन्दी भाषा।", ["हिन्दी", "भाषा"]),  # vowel signs belong to their word, the danda does not
        ("İstanbul", ["i\u0307stanbul"]),
        ("שָׁלוֹם תל־אביב", ["שָׁלוֹם", "תל", "אביב"]),
        ("", []),
        (" —!?。 ", []),
    ],
)
def test_terms_are_words_and_bigrams_of_unspaced_scripts(text, expected):
    assert terms(text) == expected


DOCS = ["cat sat mat", "cat cat dog", "bird"]
IDS = np.array([30, 20, 10], np.uint64)


def by_hand(query, documents):
    """Lucene's BM25: ln(1 + (N - n + .5) / (n + .5)) * f / (f + k1 (1 - b + b length / mean length))."""
    lengths = [len(document.split()) for document in documents]
    mean = sum(lengths) / len(lengths)
    scores = []
    for document, length in zip(documents, lengths, strict=True):
        score = 0.0
        for term in query.split():
            holding = sum(term in other.split() for other in documents)
            if holding:
                frequency = document.split().count(term)
                idf = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
                score += idf * frequency / (frequency + 1.5 * (1 - 0.75 + 0.75 * length / mean))
        scores.append(score)
    return scores


def test_the_formula_by_hand_for_one_term():
    # "bird": N 3, n 1, idf ln(1 + 2.5/1.5); lengths 3 3 1, mean 7/3; f 1, norm 1.5 (.25 + .75 x 3/7)
    expected = math.log(1 + 2.5 / 1.5) / (1 + 1.5 * (0.25 + 0.75 * 3 / 7))
    [[(row, score)]] = LexicalIndex.build(DOCS, IDS).search(["bird"], 5)
    assert row == 2
    assert score == pytest.approx(expected, rel=1e-5)
    assert by_hand("bird", DOCS)[2] == pytest.approx(expected)


@pytest.mark.parametrize("query", ["cat", "cat dog", "mat bird", "dog dog", "cat unknown"])
def test_scores_are_lucenes_and_order_is_by_score(query):
    expected = [(row, score) for row, score in enumerate(by_hand(query, DOCS)) if score > 0]
    expected.sort(key=lambda found: -found[1])
    [found] = LexicalIndex.build(DOCS, IDS).search([query], 5)
    assert [row for row, _ in found] == [row for row, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], rel=1e-5)


def test_ties_are_ordered_by_chunk_id_and_cut_after():
    index = LexicalIndex.build(["tea", "tea", "tea", "x"], np.array([3, 1, 2, 0], np.uint64))
    [found] = index.search(["tea"], 9)
    assert [row for row, _ in found] == [1, 2, 0]
    assert index.search(["tea"], 2) == [found[:2]]


def test_a_smaller_k_gives_a_prefix():
    texts = [" ".join(["tea"] * (n % 5) + ["pot"] * (n % 3) + [f"w{n}"]) for n in range(60)]
    index = LexicalIndex.build(texts, np.arange(60, dtype=np.uint64)[::-1].copy())
    [everything] = index.search(["tea pot"], 60)
    assert len(everything) == sum("tea" in t or "pot" in t for t in texts)
    assert all(index.search(["tea pot"], k) == [everything[:k]] for k in range(60))


@pytest.mark.parametrize("query", ["zebra", "", "?!", "茶"])
def test_a_query_without_a_known_term_finds_nothing(query):
    assert LexicalIndex.build(DOCS, IDS).search([query, "cat"], 5)[0] == []


def test_chinese_is_found_by_bigrams():
    index = LexicalIndex.build(["北京是首都", "上海很大"], np.array([1, 2], np.uint64))
    assert [row for row, _ in index.search(["北京在哪里"], 5)[0]] == [0]


def test_chunks_without_any_term_make_an_index_that_finds_nothing(tmp_path):
    index = LexicalIndex.build(["。", "!"], np.array([1, 2], np.uint64))
    assert index.search(["cat", "!"], 5) == [[], []]
    index.save(tmp_path / "lexical")
    assert LexicalIndex.load(tmp_path / "lexical", np.array([1, 2], np.uint64)).search(["cat"], 5) == [[]]


def test_a_saved_index_answers_as_before(tmp_path):
    index = LexicalIndex.build([*DOCS, "茶葉史", "café"], np.arange(5, dtype=np.uint64))
    index.save(tmp_path / "lexical")
    loaded = LexicalIndex.load(tmp_path / "lexical", np.arange(5, dtype=np.uint64))
    queries = ["cat dog", "茶葉", "Café", "zebra", ""]
    assert loaded.search(queries, 5) == index.search(queries, 5)
    assert [len(found) for found in loaded.search(queries, 5)] == [2, 1, 1, 0, 0]
