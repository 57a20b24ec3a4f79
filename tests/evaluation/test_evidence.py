"""Evidence: when a span is covered, and what is missing rather than zero."""

from __future__ import annotations

import pytest

from corag_ray.evaluation.evidence import evidence_precision, evidence_recall
from corag_ray.types import Chunk, Evidence, Span


def chunk(start: int, end: int, doc_id: str = "d") -> Chunk:
    return Chunk(chunk_id=start, doc_id=doc_id, position=0, start=start, end=end, text="", cost=1)


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


def test_a_question_without_evidence_has_neither():
    assert evidence_recall([], [chunk(0, 10)]) is None
    assert evidence_precision([], [chunk(0, 10)]) is None


def test_an_empty_selection_covers_nothing_and_has_no_precision():
    assert evidence_recall([SPAN], []) == 0.0
    assert evidence_precision([SPAN], []) is None
