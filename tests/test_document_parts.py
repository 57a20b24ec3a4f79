"""Parts by document, and groups of documents that must be of one part."""

import random

from corag_ray.types import Evidence, Question, Span
from jobs.document_parts import groups_of, part_of_document, part_of_question


def question(*doc_ids):
    return Question("q", "why?", (), tuple(Evidence(Span(doc_id, 0, 4)) for doc_id in doc_ids))


DOCUMENTS = [f"document {number}" for number in range(400)]


def test_documents_that_no_question_joins_have_the_part_that_they_have_on_their_own():
    groups = groups_of(DOCUMENTS, [question(doc_id) for doc_id in DOCUMENTS])
    parts = [part_of_document(doc_id, 5, groups) for doc_id in DOCUMENTS]
    assert parts == [part_of_document(doc_id, 5) for doc_id in DOCUMENTS]
    assert all(parts.count(number) > 40 for number in range(5))


def test_all_documents_of_a_question_and_of_its_neighbours_are_of_one_part_told_by_the_first_id():
    questions = [question("m", "k"), question("z", "y", "m"), question("b"), question("c", "b")]
    groups = groups_of(["a", "b", "c", "k", "m", "y", "z"], questions)
    assert groups == {"a": "a", "b": "b", "c": "b", "k": "k", "m": "k", "y": "k", "z": "k"}
    for parts in (2, 5):
        assert {part_of_document(doc_id, parts, groups) for doc_id in "kmyz"} == {part_of_document("k", parts)}


def test_no_question_needs_documents_of_two_parts_and_neither_order_nor_repetition_matters():
    chance = random.Random(0)
    questions = [question(*chance.sample(DOCUMENTS, chance.randint(1, 4))) for _ in range(80)]
    groups = groups_of(DOCUMENTS, questions)
    by_part = [set() for _ in range(5)]
    for one in questions:
        by_part[part_of_question(one, 5, groups)] |= {item.span.doc_id for item in one.evidence}
    assert all(by_part)
    assert sum(map(len, by_part)) == len(set.union(*by_part))
    assert sum(part_of_question(one, 5) is None for one in questions) > 40  # without groups they are of none
    assert groups_of([*reversed(DOCUMENTS), *DOCUMENTS], [*reversed(questions), *questions]) == groups


def test_ids_that_differ_in_underscores_alone_are_one_document_and_keep_the_part_of_the_one_with_underscores():
    for number in range(30):
        one, other = f"The_{number}_days", f"The {number} days"
        for ids in ([one, other], [other, one]):
            groups = groups_of(ids, [question("A day", other)])
            assert groups == {one: one, other: one, "A day": one}
            assert part_of_document(other, 5, groups) == part_of_document(one, 5)


def test_evidence_may_lie_in_a_document_that_was_not_named():
    assert groups_of([], [question("x")]) == {"x": "x"}
    assert part_of_question(question(), 5) is None
