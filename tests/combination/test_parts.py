"""Three named parts, the same documents in each as the passage reranker keeps back or trains on."""

import pytest

from corag_ray.types import Evidence, Question, Span
from jobs import train_reranker
from jobs.combination.parts import DEV_PART, fingerprint_of, part_of, parts_of
from jobs.document_parts import part_of_document

NAMES = {train_reranker.TEST_PART: "test", DEV_PART: "dev"}


def question(*doc_ids):
    return Question("q", "why?", (), tuple(Evidence(Span(doc_id, 0, 4)) for doc_id in doc_ids))


def test_documents_on_their_own_are_of_the_test_part_where_the_passage_reranker_keeps_them_back():
    ids = [f"d{number}" for number in range(100)]
    parts = parts_of(ids, map(question, ids))
    assert parts == {doc_id: NAMES.get(part_of_document(doc_id, train_reranker.PARTS), "train") for doc_id in ids}
    assert set(parts.values()) == {"train", "dev", "test"}


def test_a_question_is_of_the_part_of_all_its_documents():
    parts = parts_of(["a", "b", "c"], [question("a", "c")])
    assert part_of(question("a", "c"), parts) == parts["a"] == parts["c"]
    assert part_of(question(), {}) is None
    assert part_of(question("x", "y"), {"x": "dev", "y": "test"}) is None


@pytest.mark.parametrize("change", [{"a": "dev"}, {"b": "train"}])
def test_the_fingerprint_tells_partings_apart(change):
    assert fingerprint_of({"a": "train"} | change) != fingerprint_of({"a": "train"})
