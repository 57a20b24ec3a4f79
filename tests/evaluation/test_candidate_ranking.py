"""Reciprocal rank and nDCG of the evidence, by hand."""

import math

import pytest

from corag_ray.evaluation.candidate_ranking import CandidateRanking, rank_evidence
from corag_ray.types import Chunk, Evidence, Span

EVIDENCE = [Evidence(Span("a", 0, 10)), Evidence(Span("b", 0, 10))]


def chunk(doc_id, start=0, end=10):
    return Chunk(1, doc_id, 0, start, end, "x", 1)


IDEAL = 1 + 1 / math.log2(3)


@pytest.mark.parametrize(
    ("documents", "reciprocal_rank", "gain"),
    [
        ("ab", 1, IDEAL),
        ("xab", 1 / 2, 1 / math.log2(3) + 1 / math.log2(4)),
        ("aab", 1, 1 + 1 / math.log2(4)),  # the second chunk of the same span earns nothing and takes a rank
        ("xxb", 1 / 3, 1 / math.log2(4)),  # a is not found: the ideal still holds it
        ("xxx", 0, 0),
        ("", 0, 0),
        ("x" * 10 + "ab", 0, 0),  # below rank 10
    ],
)
def test_by_hand(documents, reciprocal_rank, gain):
    found = rank_evidence(EVIDENCE, [chunk(name) for name in documents])
    assert found == CandidateRanking(pytest.approx(reciprocal_rank), pytest.approx(gain / IDEAL))


def test_a_chunk_with_two_spans_finds_both():
    both = [Evidence(Span("a", 0, 4)), Evidence(Span("a", 4, 8))]
    assert rank_evidence(both, [chunk("a")]) == CandidateRanking(1.0, pytest.approx(1.0))


def test_without_evidence_nothing_is_measured():
    assert rank_evidence([], [chunk("a")]) is None
