"""Exact match and token F1, by hand and by SQuAD's own script; when an answer abstains; which answers are short."""

import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from transformers.data.metrics.squad_metrics import compute_exact, compute_f1

from corag_ray.evaluation.answers import (
    AnswerScores,
    answer_tokens,
    are_short,
    normalise,
    score_answer,
)
from corag_ray.evaluation.rouge import rouge, tokens

WORDS = st.lists(st.sampled_from(["The", "an", "cat", "Cat's", "42%", "--", "a.b", "theme", "\t"]), max_size=8)
ASCII = st.text(st.characters(max_codepoint=127), max_size=30) | WORDS.map(" ".join)


@pytest.mark.parametrize(
    ("prediction", "references", "exact", "f1"),
    [
        ("The Eiffel Tower!", ["eiffel tower"], 1, 1),
        ("in Paris, France", ["Paris"], 0, 2 * 1 / (3 + 1)),
        ("Paris Paris", ["Paris"], 0, 2 / 3),
        ("yes", ["no", "yes"], 1, 1),
        ("nothing", ["else"], 0, 0),
        ("", ["else"], 0, 0),
        ("the", ["a"], 1, 1),  # nothing is left of either
        ("埃菲尔铁塔", ["埃菲尔铁塔。"], 1, 1),
        ("铁塔", ["埃菲尔铁塔"], 0, 2 * 2 / (2 + 5)),
        ("el café", ["café"], 0, 2 / 3),
        ("running東京", ["running 東京"], 0, 1),  # the same three tokens; an English word is not stemmed
        ("cafe\u0301", ["café"], 1, 1),  # an accent of its own
        ("１４５３年", ["1453年"], 1, 1),  # full-width digits
        ("STRASSE", ["Straße"], 1, 1),
        ("co\u00adop", ["coop"], 1, 1),  # a soft hyphen is not seen
        ("in\u200bParis", ["in Paris"], 1, 1),  # a zero-width space parts words
        ("กิน", ["กิ"], 0, 2 / 3),  # a Thai vowel sign goes with its consonant
    ],
)
def test_by_hand(prediction, references, exact, f1):
    assert score_answer(prediction, references) == AnswerScores(exact, pytest.approx(f1))


FORMS = st.text("aéE\u0301ß１1²ﬁ\u00ad\u200b 茶", min_size=1, max_size=8)


@given(FORMS)
def test_a_text_in_another_unicode_form_is_the_same_answer_to_exact_match_and_to_rouge(text):
    other = unicodedata.normalize("NFKD", text)
    assume(tokens(text))
    assert score_answer(text, [other]) == AnswerScores(1, 1)
    assert rouge(text, [other]).rouge1 == 1


@given(ASCII, ASCII)
def test_ascii_answers_have_the_numbers_of_squads_script(prediction, reference):
    scores = score_answer(prediction, [reference])
    assert (scores is None) == (rouge(prediction, [reference]) is None)
    assume(scores is not None)
    assert scores.exact_match == compute_exact(reference, prediction)
    assert scores.token_f1 == pytest.approx(compute_f1(reference, prediction), abs=1e-12)


def test_without_a_prediction_or_a_reference_there_is_nothing_to_measure():
    assert score_answer("x", []) is None
    assert score_answer(None, ["x"]) is None


@pytest.mark.parametrize("references", [[""], [" ", "\t"], ["--", "。"]])
def test_references_without_a_token_are_none_for_f1_and_for_rouge(references):
    assert score_answer("x", references) is None
    assert rouge("x", references) is None
    assert score_answer("", [*references, "x"]) == AnswerScores(0, 0)  # what is empty is no reference to be equal to
    assert score_answer("x", [*references, "x"]) == AnswerScores(1, 1)


def test_answers_are_short_where_half_of_the_questions_have_one_of_ten_tokens():
    short, long = ["1453", "in the year 1453 after a siege of seven weeks or so"], [" ".join("abcdefghijkl"), "x " * 11]
    assert are_short([short, long])
    assert not are_short([short, long, long])
    assert are_short([short, [], []])  # a question without answers says nothing
    assert not are_short([[]])
    assert are_short([["東京は日本の首都です"]])  # ten characters
    assert not are_short([["東京は日本の首都ですよ"]])


def test_normal_forms():
    assert normalise(" A  “Tea-time”, an hour ") == "teatime hour"
    assert answer_tokens("in 1660 茶叶") == ["in", "1660", "茶", "叶"]


@given(st.text(max_size=40), st.text(max_size=40))
def test_within_0_and_1_symmetric_and_1_on_itself(a, b):
    assume(tokens(a) and tokens(b))
    scores = score_answer(a, [b])
    assert 0 <= scores.token_f1 <= 1
    assert scores.token_f1 == score_answer(b, [a]).token_f1
    assert score_answer(a, [a]) == AnswerScores(1, 1)
    assert scores.exact_match <= scores.token_f1
