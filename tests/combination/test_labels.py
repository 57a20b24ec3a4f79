"""Labels by a slow teacher: of which questions, asked once, and how far they agree with evidence."""

import pytest
from made_questions import asked_of

from jobs.combination.checkpoint import Example
from jobs.combination.examples import Asked
from jobs.combination.labels import Labelled, agreement, answered, labelled, read_labels
from jobs.combination.lessons import few


def example(text, answers=("yes",)):
    one = asked_of([{0}, set(), {1}, set(), set()], text=text)
    return Example(
        Asked(one.text, one.part, one.kind, one.chunks, one.rows, one.holds, one.evidence, answers), matches=None
    )


class Lengths:
    """A teacher that likes long combinations and knows whom it was asked about."""

    def __init__(self):
        self.loaded, self.asked = 0, []

    def __call__(self):
        self.loaded += 1
        return self

    def of(self, asked, combinations):
        self.asked.append(asked.text)
        return [float(len(combination)) for combination in combinations]


EXAMPLES = [example(f"{n}?") for n in range(3)]


def labels_by(teacher, cache, examples=EXAMPLES, identity="lengths", watch=lambda done: None):
    return labelled(examples, teacher, identity, cache, 4, 0, watch)


def test_a_question_is_asked_once_and_the_teacher_loaded_only_for_new_ones(tmp_path):
    cache, teacher, done = tmp_path / "new" / "labels.jsonl", Lengths(), []
    found = labels_by(teacher, cache, EXAMPLES[:2], watch=done.append)
    assert done == [1, 2]
    assert teacher.loaded == 1
    for one, of_question in zip(EXAMPLES, found, strict=False):
        assert list(of_question.combinations) == few(one.asked, 0, 0, 4)
        assert of_question.log_likelihoods == tuple(map(float, map(len, of_question.combinations)))
    again = Lengths()
    assert [one.log_likelihoods for one in labels_by(again, cache, EXAMPLES[:2])] == [
        one.log_likelihoods for one in found
    ]
    assert again.loaded == 0
    labels_by(again, cache)
    assert again.asked == ["2?"]


def test_another_teachers_labels_or_another_answers_are_not_taken(tmp_path):
    cache, other = tmp_path / "labels.jsonl", Lengths()
    labels_by(Lengths(), cache)
    labels_by(other, cache, identity="another")
    labels_by(other, cache, [example("0?", ("no",))])
    assert other.asked == ["0?", "1?", "2?", "0?"]


def test_after_a_kill_in_the_middle_of_a_line_that_question_alone_is_asked_again(tmp_path):
    cache, teacher = tmp_path / "labels.jsonl", Lengths()
    labels_by(Lengths(), cache)
    cache.write_text(cache.read_text().rstrip("\n")[:-9])
    assert len(read_labels(cache)) == 2
    labels_by(teacher, cache)
    assert teacher.asked == ["2?"]
    assert len(read_labels(cache)) == 3


def test_only_questions_with_an_answer_are_labelled_in_turn_from_each_set():
    many = [example(f"a{n}", ("x",) if n else ()) for n in range(9)]
    single = [example("b")]
    found = [one.asked.text for one in answered([many, single], 4, seed=1)]
    assert found[1] == "b"
    assert "a0" not in [one.asked.text for one in answered([many, single], 99, seed=1)]
    assert len(answered([many, single], 99, seed=1)) == 9
    assert found[:3] == [one.asked.text for one in answered([many, single], 3, seed=1)]
    assert found != [one.asked.text for one in answered([many, single], 4, seed=2)]


def test_agreement_counts_pairs_beyond_the_threshold_and_of_those_the_ones_that_evidence_tells_apart():
    asked = asked_of([{0}, {1}, set(), set()])
    # Grades: 1 for both, .5 for either part, 0 for nothing.
    labels = Labelled(((0, 1), (0,), (1,), ()), (-1.0, -2.0, -0.5, -2.05), 0.0)
    # Beyond .1: all six but (0,) and (). Equal in grade: (0,) and (1,). Of the other four, (0, 1) above (0,), (0, 1)
    # above () and (1,) above () agree, (1,) above (0, 1) does not.
    assert agreement([asked], [labels], 0.1) == {"pairs_ordered": 5, "agreeing": 0.75}
    assert agreement([asked], [labels], 5.0) == {"pairs_ordered": 0, "agreeing": None}
    assert agreement([asked] * 2, [labels] * 2, 0.01)["agreeing"] == pytest.approx(0.8)
