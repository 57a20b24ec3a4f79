"""Passages of one document: which are joined, in which order, with which titles, and where evidence then stands."""

import pytest

from corag_ray.datasets.assemble import assemble
from corag_ray.types import Document, Evidence, Span

QUERIES = [{"query_id": "q", "question": "How old?"}]


def passage(passage_id, text, **more):
    return {"passage_id": passage_id, "text": text} | more


def load(corpus, queries=QUERIES):
    """The data set of these records."""
    passages, asked = ([(f"line {n}", r) for n, r in enumerate(records, start=1)] for records in (corpus, queries))
    return assemble("set", "source", passages, asked)


def test_passages_with_numbers_are_one_document_in_the_order_of_the_numbers():
    data = load(
        [passage("d#10", "ten", doc_id="d"), passage("d#2", "two", doc_id="d"), passage("d#1", "one", doc_id="d")]
    )
    assert data.documents == (Document("d", "one\ntwo\nten"),)


def test_evidence_of_a_rebuilt_document_is_where_its_passage_stands():
    corpus = [passage("d#1", "é two", doc_id="d", title="T"), passage("d#0", "zero", doc_id="d", title="T")]
    data = load(corpus, [QUERIES[0] | {"relevant_passage_ids": ["d#1", "gone", "d#0"]}])
    assert data.documents == (Document("d", "T\nzero\né two"),)
    assert data.questions[0].evidence == (
        Evidence(Span("d", 7, 12), text="é two"),
        Evidence(Span("d", 2, 6), text="zero"),
    )


def test_passages_without_numbers_stay_apart():
    corpus = [passage("intro", "one", doc_id="d"), passage("body", "two", doc_id="d"), passage("x", "y", doc_id="e")]
    data = load(corpus, [QUERIES[0] | {"relevant_passage_ids": ["body", "x"]}])
    assert data.documents == (Document("intro", "one"), Document("body", "two"), Document("e", "y"))
    # The evidence is in the document that holds the passage.
    assert data.questions[0].evidence == (
        Evidence(Span("body", 0, 3), text="two"),
        Evidence(Span("e", 0, 1), text="y"),
    )


@pytest.mark.parametrize(
    ("ids", "joined", "apart"),
    [
        (["d#0", "d#0~2", "d#1", "d#1~2"], ["d#0", "d#1"], ["d#0~2", "d#1~2"]),  # a second one of each number
        (["appendix", "d#10", "d#9"], ["d#9", "d#10"], ["appendix"]),
    ],
)
def test_passages_whose_ids_differ_in_more_than_their_number_stay_apart_from_those_that_are_joined(ids, joined, apart):
    data = load([passage(name, f"text of {name}", doc_id="d") for name in ids])
    whole = Document("d", "\n".join(f"text of {name}" for name in joined))
    assert data.documents == (whole, *(Document(name, f"text of {name}") for name in apart))


@pytest.mark.parametrize(
    "ids",
    [
        ["d-0-400", "d-300-700"],  # windows that overlap
        ["d#2", "d#02", "d#1"],
        ["a#2", "b#1"],
        ["a#2", "a#1", "b#1", "b#2"],  # which of them is d?
        ["d#2", "d", "d#1"],  # d is a passage
        ["d#1", "appendix"],
    ],
)
def test_passages_stay_apart_where_their_numbers_tell_no_order(ids):
    data = load([passage(name, f"text of {name}", doc_id="d") for name in ids])
    assert data.documents == tuple(Document(name, f"text of {name}") for name in ids)


def test_a_title_is_a_line_wherever_it_changes_and_evidence_stands_after_it():
    parts = [("Tea", "It is old."), ("Tea", "It is hot."), ("", "Milk?"), ("Tea", "No."), ("Salt", "It is dry."),
             ("Sea", "Sea water."), ("Sea", "Waves.")]  # fmt: skip
    corpus = [passage(f"d#{n}", text, doc_id="d", title=title) for n, (title, text) in enumerate(parts)]
    data = load(corpus, [QUERIES[0] | {"relevant_passage_ids": ["d#4", "d#6"]}])
    [document] = data.documents
    assert document.text == "Tea\nIt is old.\nIt is hot.\nMilk?\nNo.\nSalt\nIt is dry.\nSea water.\nWaves."
    # Before "It is dry." are 3 + 10 + 10 + 5 + 3 + 4 characters and 6 line ends, before "Waves." 20 and 2 more.
    assert data.questions[0].evidence == (
        Evidence(Span("d", 41, 51), text="It is dry."),
        Evidence(Span("d", 63, 69), text="Waves."),
    )


class Compared(str):
    """An id that counts how often one is compared with another."""

    times = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Compared.times += 1
        return str.__eq__(self, other)


def test_joining_a_document_of_many_passages_compares_no_passage_with_each_other_one():
    data = load([passage(Compared(f"d#{n}"), "", doc_id="d") for n in range(200)])
    assert data.documents == (Document("d", "\n" * 199),)
    assert Compared.times < 200 * 4  # all pairs are 19,900


def test_documents_stand_in_file_order():
    corpus = [passage("b#0", "1", doc_id="b"), passage("a#0", "2", doc_id="a"), passage("b#1", "3", doc_id="b")]
    assert [d.doc_id for d in load(corpus).documents] == ["b", "a"]


@pytest.mark.parametrize(
    ("title", "text", "expected"),
    [
        ("Tea", "It is old.", "Tea\nIt is old."),
        ("Tea", "Tea is old.", "Tea is old."),
        ("Tea", "  Tea is old.", "  Tea is old."),
        (" Tea ", "It is old.", "Tea\nIt is old."),
        ("", "It is old.", "It is old."),
        ("  ", "It is old.", "It is old."),
    ],
)
def test_a_title_is_the_first_line_unless_the_text_begins_with_it(title, text, expected):
    data = load([passage("p", text, title=title)], [QUERIES[0] | {"relevant_passage_ids": ["p"]}])
    assert data.documents == (Document("p", expected),)
    [evidence] = data.questions[0].evidence
    assert expected[evidence.span.start : evidence.span.end] == text == evidence.text
