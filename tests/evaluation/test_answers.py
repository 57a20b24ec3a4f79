"""Exact match and token F1, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag_ray.evaluation.answers import AnswerScores, answer_tokens, normalise, score_answer


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
    ],
)
def test_by_hand(prediction, references, exact, f1):
    assert score_answer(prediction, references) == AnswerScores(exact, pytest.approx(f1))


def test_without_a_reference_there_is_nothing_to_measure():
    assert score_answer("x", []) is None


def test_normal_forms():
    assert normalise(" A  “Tea-time”, an hour ") == "teatime hour"
    assert answer_tokens("in 1660 茶叶") == ["in", "1660", "茶", "叶"]


@given(st.text(max_size=40), st.text(max_size=40))
def test_within_0_and_1_symmetric_and_1_on_itself(a, b):
    scores = score_answer(a, [b])
    assert 0 <= scores.token_f1 <= 1
    assert scores.token_f1 == score_answer(b, [a]).token_f1
    assert score_answer(a, [a]) == AnswerScores(1, 1)
    assert scores.exact_match <= scores.token_f1
