"""The questions to compare on: of documents that no trained reranker has learned from."""

from __future__ import annotations

import random
from collections.abc import Sequence

from corag_ray.types import Question
from jobs.combination.parts import Part, Parts, part_of
from jobs.document_parts import part_of_question
from jobs.train_reranker import PARTS, TEST_PART


def held_out(
    questions: Sequence[Question], parts: Parts, learned: Parts, *, of_passages: bool, seed: int
) -> list[Question]:
    """The test part's questions in a drawn order, whose first few stay the same however many are taken.

    Args:
        questions: of one data set, with evidence.
        parts: of its documents.
        learned: parts of the documents that the set head's training drew from. What they know as a document of another
            part than the test's is not asked about, also where `parts`, of a data set that the head never saw, do.
        of_passages: whether a cross-encoder was trained on passages of this data set: `jobs.train_reranker` parts a
            document by its own id, without those that a question needs with it.
        seed: of the order.
    """
    known: dict[str, Part] = {_spelt(doc_id): part for doc_id, part in learned.items()}
    kept = [
        question
        for question in questions
        if part_of(question, parts) == "test"
        and all(known.get(_spelt(item.span.doc_id), "test") == "test" for item in question.evidence)
        and not (of_passages and part_of_question(question, PARTS) not in (None, TEST_PART))
    ]
    random.Random(seed).shuffle(kept)
    return kept


def _spelt(doc_id: str) -> str:
    """As `groups_of` compares ids: Wikipedia's titles come with underscores and with blanks."""
    return doc_id.replace("_", " ")
