"""The three parts of the documents that the combination reranker is trained on and judged by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Literal

from corag_ray.types import Question
from jobs.document_parts import groups_of, in_one_part, part_of_document
from jobs.train_reranker import PARTS, TEST_PART

Part = Literal["train", "dev", "test"]
Parts = Mapping[str, Part]
"""By document id; of several sets together, so that a document's part is the same in all of them."""
DEV_PART = 1
"""Of the `PARTS` of `train_reranker`, beside its `TEST_PART`; the others train."""


def parts_of(doc_ids: Iterable[str], questions: Iterable[Question]) -> Parts:
    """The part of every document, evidence's included: that of its group (`jobs.document_parts`)."""
    groups = groups_of(doc_ids, questions)
    return {doc_id: _named(part_of_document(doc_id, PARTS, groups)) for doc_id in groups}


def part_of(question: Question, parts: Parts) -> Part | None:
    """The part that holds all documents of its evidence; None where there is no such part, or no evidence."""
    return in_one_part(question, lambda doc_id: parts[doc_id])


def fingerprint_of(parts: Parts) -> str:
    """Tells whether two jobs part alike."""
    return hashlib.sha256(json.dumps(sorted(parts.items())).encode()).hexdigest()[:16]


def _named(number: int) -> Part:
    return "test" if number == TEST_PART else "dev" if number == DEV_PART else "train"
