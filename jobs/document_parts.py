"""Questions parted by document, so that what one part teaches is judged on texts that it has never seen."""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from corag_ray.types import Question

Part = TypeVar("Part")

Groups = Mapping[str, str]
"""By document id the first id of the documents that must be of one part with it; one that is not named stands alone."""
APART: Groups = types.MappingProxyType({})
"""Every document on its own: enough where each question needs one."""


def groups_of(doc_ids: Iterable[str], questions: Iterable[Question]) -> Groups:
    """Which documents must be of one part, evidence's included.

    Documents that one question needs are a group, and so on from question to question. Without groups, three questions
    in five that need two documents would be of no part, since a hash of each id alone puts them into different ones.
    Ids that differ in underscores alone are one document, as Wikipedia's titles are; those with underscores stand
    before others, so that a set that writes them has the parts that it has on its own.
    """
    leaders: dict[str, str] = {}

    def leader(doc_id: str) -> str:
        while leaders.setdefault(doc_id, doc_id) != doc_id:
            leaders[doc_id] = doc_id = leaders[leaders[doc_id]]
        return doc_id

    def join(one: str, other: str) -> None:
        first, second = sorted((leader(one), leader(other)), key=lambda doc_id: ("_" not in doc_id, doc_id))
        leaders[second] = first

    spelt: dict[str, str] = {}
    for doc_id in doc_ids:
        join(spelt.setdefault(doc_id.replace("_", " "), doc_id), doc_id)
    for question in questions:
        needed = [item.span.doc_id for item in question.evidence]
        for doc_id in needed:
            join(needed[0], doc_id)
    return {doc_id: leader(doc_id) for doc_id in list(leaders)}


def part_of_document(doc_id: str, parts: int, groups: Groups = APART) -> int:
    """0 to `parts` - 1, by a hash of its group's first id, without groups of its own; `parts` is at most 256."""
    return hashlib.sha256(groups.get(doc_id, doc_id).encode()).digest()[0] % parts


def part_of_question(question: Question, parts: int, groups: Groups = APART) -> int | None:
    """The part that holds all documents of its evidence; None where there is no such part, or no evidence."""
    return in_one_part(question, lambda doc_id: part_of_document(doc_id, parts, groups))


def in_one_part(question: Question, part_of: Callable[[str], Part]) -> Part | None:
    """`part_of_question` where a document's part is told by its id in another way."""
    found = {part_of(evidence.span.doc_id) for evidence in question.evidence}
    return found.pop() if len(found) == 1 else None
