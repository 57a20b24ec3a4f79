"""Questions drawn by part with candidates of that part, and two-part questions."""

import random

from made_questions import chunk

from corag_ray.types import Evidence, Question, Span
from jobs.combination.drawing import CANDIDATES, asked_of, draw, joined


def question(name, *spans):
    evidence = tuple(Evidence(Span(doc_id, start, start + 4)) for doc_id, start in spans)
    return Question(name, f"{name}?", ("answer",), evidence)


def test_two_part_questions_join_texts_and_evidence_of_single_ones():
    singles = [question(f"q{number}", ("x" if number < 4 else "y", 10 * number)) for number in range(8)]
    made = joined([*singles, question("two", ("x", 0), ("y", 0))], random.Random(3))
    assert len(made) == 8  # four pairs at random, four by document
    by_text = {single.text: single.evidence[0] for single in singles}
    for one in made:
        first, second = one.text.split(" ")
        assert first != second
        assert one.evidence == (by_text[first], by_text[second])
        assert one.answers == ()
    assert all(len({item.span.doc_id for item in one.evidence}) == 1 for one in made[4:])
    assert made == joined([*singles, question("two", ("x", 0), ("y", 0))], random.Random(3))


def test_questions_of_the_same_evidence_are_not_joined():
    assert joined([question("a", ("x", 0)), question("b", ("x", 0))], random.Random(0)) == []


class Index:
    """Finds every chunk for every question, in row order."""

    def __init__(self, chunks):
        self.store = self.first_stage = self
        self._chunks = chunks

    def search(self, queries, k):
        return [[(row, 1.0) for row in range(len(self._chunks))][:k] for _ in queries]

    def take(self, rows):
        return [self._chunks[row] for row in rows]


PARTS = {"a": "train", "b": "test", "c": "test", "d": "dev"}


def drawn(questions, chunks, **limits):
    return list(draw(questions, PARTS, "test", Index(chunks), **({"limit": 9, "limit_joined": 9} | limits)))


def test_a_questions_candidates_are_the_highest_of_its_own_part():
    chunks = [chunk(n, "abcd"[n % 4], n) for n in range(4 * CANDIDATES)]
    [found] = drawn([question("q", ("b", 0)), question("other", ("a", 0)), question("late", ("d", 0))], chunks)
    assert found.part == "test"
    assert found.kind == "single"
    assert found.answers == ("answer",)
    assert {c.doc_id for c in found.chunks} == {"b", "c"}
    assert found.rows == tuple(row for row in range(4 * CANDIDATES) if row % 4 in (1, 2))[:CANDIDATES]
    assert found.holds == tuple(frozenset({0} if c.doc_id == "b" else ()) for c in found.chunks)


def test_limits_take_questions_from_all_over_and_leave_out_those_without_evidence_found():
    questions = [question(f"q{n}", ("b" if n != 2 else "c", 100 * (n == 4))) for n in range(6)]
    chunks = [chunk(0, "b"), chunk(1, "a")]
    assert [one.text for one in drawn(questions, chunks, limit=3, limit_joined=0)] == ["q0?"]  # of q0, q2 and q4
    assert len(drawn(questions, chunks, limit=6, limit_joined=0)) == 4
    double = drawn(questions, chunks, limit=0, limit_joined=9)
    assert {one.kind for one in double} == {"joined"}
    assert {one.evidence for one in double} == {2}


def test_a_chunk_can_hold_several_pieces_of_evidence_and_several_chunks_one():
    asked = asked_of(question("q", ("b", 0), ("b", 0), ("c", 9)), "test", "several", [(7, chunk(0, "b"))] * 2)
    assert asked.holds == (frozenset({0, 1}), frozenset({0, 1}))
    assert asked.evidence == 3
    assert asked.rows == (7, 7)
