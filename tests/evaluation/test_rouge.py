"""ROUGE: rouge-score's numbers for ASCII, words of other scripts, and what is missing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from corag_ray.evaluation.rouge import RougeScores, rouge, tokens

NAMES = ("rouge1", "rouge2", "rougeL")
LIBRARY = RougeScorer(list(NAMES), use_stemmer=True)
WORDS = st.lists(st.sampled_from(["The", "running", "runs", "cat-like", "a_b", "don't", "42", "!", "\t"]), max_size=12)
ASCII = st.text(st.characters(max_codepoint=127), max_size=60) | WORDS.map(" ".join)


@given(ASCII, ASCII)
def test_ascii_texts_give_exactly_the_numbers_of_rouge_score(prediction: str, reference: str):
    ours = rouge(prediction, [reference])
    theirs = LIBRARY.score(reference, prediction)
    if ours is None:
        assert not any(character.isalnum() for character in reference)
    else:
        assert ours == RougeScores(*(theirs[name].fmeasure for name in NAMES))


@given(ASCII, st.lists(st.sampled_from(["the cat", "a dog runs", "dogs and cats"]), min_size=1, max_size=3))
def test_the_best_reference_is_taken_for_each_measure_on_its_own(prediction: str, references: list[str]):
    each = [LIBRARY.score(reference, prediction) for reference in references]
    best = RougeScores(*(max(scores[name].fmeasure for scores in each) for name in NAMES))
    assert rouge(prediction, references) == best


def test_two_references_can_win_one_measure_each():
    # "d c b a" has every word but no order (rougeL 1/4); "a b x y" has two words in order (rougeL 2/4).
    scores = rouge("a b c d", ["d c b a", "a b x y"])
    assert scores is not None
    assert (scores.rouge1, scores.rougeL) == (1.0, 0.5)


@given(st.text(min_size=1, max_size=40))
def test_a_text_scores_one_against_itself_unless_it_holds_no_token(text: str):
    scores = rouge(text, [text])
    if scores is None:
        assert tokens(text) == []
    else:
        assert (scores.rouge1, scores.rougeL) == (1.0, 1.0)
        assert scores.rouge2 == (1.0 if len(tokens(text)) > 1 else 0.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("東京は日本", ["東", "京", "は", "日", "本"]),
        ("カタカナ", ["カ", "タ", "カ", "ナ"]),
        ("ｶﾀｶﾅ", ["カ", "タ", "カ", "ナ"]),  # half-width kana are the same kana
        ("Tokyo東京2020年", ["tokyo", "東", "京", "2020", "年"]),
        ("กิน", ["กิ", "น"]),  # a Thai vowel sign goes with its consonant
        ("Élan vital, déjà-vu", ["élan", "vital", "déjà", "vu"]),
        ("Москва — столица", ["москва", "столица"]),
        ("ΣΟΦΟΣ σοφός", ["σοφοσ", "σοφόσ"]),  # the final sigma is a sigma
        ("हिन्दी में", ["हिन्दी", "में"]),  # combining marks do not cut a word
        ("ب\u200cب", ["بب"]),  # nor does a zero-width joiner
        ("한국어 단어", ["한국어", "단어"]),
        ("STRASSE Straße", ["strass", "strass"]),
        ("snake_case - ❤\ufe0f", ["snake", "case"]),
    ],
)
def test_words_of_every_script_are_tokens(text: str, expected: list[str]):
    assert tokens(text) == expected


def test_composed_and_decomposed_accents_are_the_same_word():
    assert rouge("cafe\u0301 noir", ["caf\u00e9 noir"]) == RougeScores(1.0, 1.0, 1.0)


def test_an_english_word_stems_alike_beside_other_scripts():
    scores = rouge("running", ["runs 東"])
    assert scores is not None
    assert scores.rouge1 == pytest.approx(2 * 1 * 0.5 / 1.5)  # precision 1 of 1, recall 1 of 2


@pytest.mark.parametrize("references", [[], [""], ["...", "?!"]])
def test_nothing_to_compare_with_is_missing_and_not_zero(references: list[str]):
    assert rouge("an answer", references) is None


def test_an_empty_reference_beside_a_real_one_changes_nothing():
    assert rouge("a cat", ["", "a cat"]) == RougeScores(1.0, 1.0, 1.0)


@pytest.mark.parametrize("prediction", ["", "?!"])
def test_a_prediction_without_tokens_scores_zero(prediction: str):
    assert rouge(prediction, ["a cat"]) == RougeScores(0.0, 0.0, 0.0)
