"""Several data sets as one: nothing is lost, nothing is mixed up."""

from dataclasses import replace

import pytest

from corag_ray.datasets.assemble import Dataset
from corag_ray.datasets.union import NAME_CHARACTERS, prefixes, union
from corag_ray.errors import DataError
from corag_ray.types import Document, Evidence, Question, Span

EVIDENCE = Evidence(Span("d", 0, 5), Span("d", 2, 3), "tea i")
ONE = Dataset("one", (Document("d", "tea is"),), (Question("q", "why?", ("so",), (EVIDENCE,)),), 2, "c1", "q1")
TWO = Dataset(
    "two", (Document("d", "salt"), Document("e", "")), (Question("q", "who?", answerable=False),), 3, "c2", "q2"
)


def test_the_same_ids_in_two_sets_stay_apart_and_evidence_follows():
    both = union([ONE, TWO])
    assert both.name == "one+two"
    assert both.documents == (Document("one/d", "tea is"), Document("two/d", "salt"), Document("two/e", ""))
    evidence = Evidence(Span("one/d", 0, 5), Span("one/d", 2, 3), "tea i")
    assert both.questions == (
        Question("one/q", "why?", ("so",), (evidence,)),
        Question("two/q", "who?", answerable=False),
    )
    assert both.missing_evidence == 5


@pytest.mark.parametrize("change", [{"fingerprint": "c9"}, {"name": "ten"}])
def test_the_fingerprint_changes_with_any_part_and_with_the_order(change):
    prints = {union(parts).fingerprint for parts in ([ONE, TWO], [TWO, ONE], [replace(ONE, **change), TWO])}
    assert len(prints) == 3


def test_questions_have_a_fingerprint_of_their_own():
    other = union([replace(ONE, questions_fingerprint="q9"), TWO])
    assert other.fingerprint == union([ONE, TWO]).fingerprint
    assert other.questions_fingerprint != union([ONE, TWO]).questions_fingerprint


def test_a_long_list_of_names_is_cut_and_still_told_apart():
    many = [replace(ONE, name=f"a-rather-long-name-{n}") for n in range(9)]
    names = {union(many).name, union(many[:8]).name}
    assert len(names) == 2
    assert all(len(name) <= NAME_CHARACTERS for name in names)


def test_a_set_alone_keeps_its_name_and_ids():
    assert union([ONE]) == ONE
    assert prefixes([ONE]) == [""]
    assert prefixes([ONE, TWO]) == ["one/", "two/"]


def test_two_sets_of_one_name_are_refused():
    with pytest.raises(DataError, match="two data sets are named 'one'"):
        union([ONE, TWO, ONE])
