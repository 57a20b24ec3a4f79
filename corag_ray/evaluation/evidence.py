"""How much of a question's evidence the selected chunks hold, and how many of the chunks hold some."""

from __future__ import annotations

from collections.abc import Sequence

from corag_ray.types import Chunk, Evidence, Question, Span


def answering_evidence(question: Question) -> tuple[Evidence, ...]:
    """The evidence that is measured: none where the set says that the corpus does not hold the answer.

    Some sets mark passages of such questions all the same: they are near the question, and support no answer.
    """
    return () if question.answerable is False else question.evidence


def evidence_recall(evidence: Sequence[Evidence], chunks: Sequence[Chunk]) -> float | None:
    """The share of evidence spans that a selected chunk covers; None when the question marks no evidence.

    A span longer than twice the chunk size can only be covered through its marked answer: pieces in several chunks do
    not add up, since a reader of one piece has not seen the evidence.
    """
    if not evidence:
        return None
    covered = sum(any(covers(chunk, item) for chunk in chunks) for item in evidence)
    return covered / len(evidence)


def evidence_precision(evidence: Sequence[Evidence], chunks: Sequence[Chunk]) -> float | None:
    """The share of selected chunks that cover at least one evidence span, or lie in one with at least half of theirs.

    So a chunk within a long passage is useful, though it holds too little of it to count for recall. None when nothing
    is selected, and when the question marks no evidence: a chunk is not wrong because nobody looked.
    """
    if not evidence or not chunks:
        return None
    useful = sum(any(covers(chunk, item) or _lies_in(chunk, item.span) for item in evidence) for chunk in chunks)
    return useful / len(chunks)


def covers(chunk: Chunk, item: Evidence) -> bool:
    """Whether the chunk holds at least half of the span, or the whole marked answer, or a copy of the span.

    A copy is the span's text, word for word, in another document; it counts where it is at least half of the chunk, so
    that a few common words are none. An empty span is never held.
    """
    if chunk.doc_id != item.span.doc_id:
        copied = item.text.strip()
        return bool(copied) and len(chunk.text) <= 2 * len(copied) and copied in chunk.text
    shared = _shared_characters(chunk, item.span)
    if shared > 0 and 2 * shared >= item.span.end - item.span.start:
        return True
    answer = item.answer
    return answer is not None and 0 < answer.end - answer.start == _shared_characters(chunk, answer)


def covers_any(chunk: Chunk, evidence: Sequence[Evidence]) -> bool:
    """Whether the chunk covers one of the spans at least."""
    return any(covers(chunk, item) for item in evidence)


def _lies_in(chunk: Chunk, span: Span) -> bool:
    shared = _shared_characters(chunk, span)
    return shared > 0 and 2 * shared >= chunk.end - chunk.start


def _shared_characters(chunk: Chunk, span: Span) -> int:
    if chunk.doc_id != span.doc_id:
        return 0
    return max(0, min(chunk.end, span.end) - max(chunk.start, span.start))
