"""Questions parted by document, so that what one part teaches is judged on texts that it has never seen."""

from __future__ import annotations

import hashlib

from corag_ray.types import Question


def part_of_document(doc_id: str, parts: int) -> int:
    """0 to `parts` - 1, by a hash of the id; `parts` is at most 256."""
    return hashlib.sha256(doc_id.encode()).digest()[0] % parts


def part_of_question(question: Question, parts: int) -> int | None:
    """The part that holds all documents of its evidence; None where there is no such part, or no evidence."""
    found = {part_of_document(evidence.span.doc_id, parts) for evidence in question.evidence}
    return found.pop() if len(found) == 1 else None
