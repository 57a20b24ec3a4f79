"""Evidence: when a span is covered, and what is missing rather than zero."""

from __future__ import annotations

import pytest

from corag_ray.evaluation.candidate_ranking import CandidateRanking, rank_evidence
from corag_ray.evaluation.evidence import answering_evidence, evidence_precision, evidence_recall
from corag_ray.types import Chunk, Evidence, Question, Span


def chunk(start: int, end: int, doc_id: str = "d", text: str = "") -> Chunk:
    return Chunk(chunk_id=start, doc_id=doc_id, position=0, start=start, end=end, text=text, cost=1)


SPAN = Evidence(Span("d", 100, 200))
WITH_ANSWER = Evidence(Span("d", 100, 200), answer=Span("d", 190, 200))


@pytest.mark.parametrize(
    ("evidence", "held", "covered"),
    [
        (SPAN, chunk(0, 150), 1.0),  # 50 of 100 characters: half is enough
        (SPAN, chunk(0, 149), 0.0),
        (SPAN, chunk(150, 300), 1.0),
        (SPAN, chunk(120, 170), 1.0),  # a small chunk inside a long span
        (SPAN, chunk(100, 200, doc_id="other"), 0.0),
        (SPAN, chunk(200, 300), 0.0),  # touching is not holding
        (WITH_ANSWER, chunk(185, 300), 1.0),  # 15 of 100 characters, but the whole answer
        (WITH_ANSWER, chunk(191, 300), 0.0),  # one character of the answer is cut
        (WITH_ANSWER, chunk(50, 160), 1.0),  # 60 of 100 characters, without the answer
        (Evidence(Span("d", 5, 5)), chunk(0, 10), 0.0),  # an empty span is never held
        (Evidence(Span("d", 100, 200), answer=Span("d", 5, 5)), chunk(0, 10), 0.0),
    ],
)
def test_a_span_is_covered_by_half_of_it_or_by_its_whole_answer(evidence: Evidence, held: Chunk, covered: float):
    assert evidence_recall([evidence], [held]) == covered
    assert evidence_precision([evidence], [held]) == covered


def test_two_chunks_that_hold_less_than_half_each_do_not_add_up():
    assert evidence_recall([SPAN], [chunk(0, 140), chunk(140, 180), chunk(180, 300)]) == 0.0


def test_recall_counts_spans_and_precision_counts_chunks():
    spans = [SPAN, Evidence(Span("d", 300, 310)), Evidence(Span("e", 0, 10))]
    selected = [chunk(90, 320), chunk(400, 500), chunk(100, 200), chunk(500, 600)]
    assert evidence_recall(spans, selected) == pytest.approx(2 / 3)
    assert evidence_precision(spans, selected) == 0.5


@pytest.mark.parametrize(
    ("start", "end", "useful"),
    [
        (130, 150, 1.0),  # all of it, a fifth of the span
        (90, 110, 1.0),  # 10 of its 20 characters
        (90, 109, 0.0),  # 9 of 19
        (200, 220, 0.0),
    ],
)
def test_a_chunk_of_which_half_lies_in_a_span_is_useful_though_it_covers_none(start: int, end: int, useful: float):
    assert evidence_precision([SPAN], [chunk(start, end)]) == useful
    assert evidence_recall([SPAN], [chunk(start, end)]) == 0.0


def test_a_chunk_useful_for_a_span_that_it_does_not_cover_leaves_the_others_uncovered():
    assert evidence_precision([SPAN], [chunk(100, 160), chunk(160, 180), chunk(300, 400)]) == pytest.approx(2 / 3)


GOLD = Evidence(Span("d", 100, 112), text=" Tea is old.\n")  # 11 characters without the blanks around it


@pytest.mark.parametrize(
    ("held", "covered"),
    [
        (chunk(0, 22, "copy", "Tea is old. It is, too"), 1.0),  # 11 of 22 characters
        (chunk(0, 23, "copy", "Tea is old. It is, too."), 0.0),  # 11 of 23: words that a long text holds by chance
        (chunk(0, 11, "copy", "Tea is old!"), 0.0),
        (chunk(0, 10, "copy", "Tea is old"), 0.0),  # a part of the text
        (chunk(0, 11, "d", "Tea is old."), 0.0),  # in the span's own document its place decides
    ],
)
def test_a_copy_of_the_span_in_another_document_covers_it_where_it_is_half_of_the_chunk(held: Chunk, covered: float):
    assert evidence_recall([GOLD], [held]) == covered
    assert evidence_precision([GOLD], [held]) == covered
    assert rank_evidence([GOLD], [held]) == CandidateRanking(covered, covered)


@pytest.mark.parametrize("text", ["", " \n"])
def test_a_span_without_text_has_no_copies(text: str):
    assert evidence_recall([Evidence(Span("d", 0, 2), text=text)], [chunk(0, 2, "copy", text)]) == 0.0


@pytest.mark.parametrize("answerable", [None, True, False])
def test_of_a_question_that_the_set_calls_unanswerable_no_evidence_is_measured(answerable: bool | None):
    question = Question("q", "?", evidence=(SPAN,), answerable=answerable)
    assert answering_evidence(question) == (() if answerable is False else (SPAN,))


def test_a_question_without_evidence_has_neither():
    assert evidence_recall([], [chunk(0, 10)]) is None
    assert evidence_precision([], [chunk(0, 10)]) is None


def test_an_empty_selection_covers_nothing_and_has_no_precision():
    assert evidence_recall([SPAN], []) == 0.0
    assert evidence_precision([SPAN], []) is None
