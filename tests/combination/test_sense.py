"""The checks of combination sense, by scores written down."""

import random

import pytest
from made_questions import asked_of

from corag_ray.types import Score
from jobs.combination.sense import cases, figures, judge, sense

TWO = asked_of([set(), {1}, set(), {0}, set()], [("a", 0), ("b", 0), ("c", 0), ("b", 1), ("e", 0)])


def test_the_checks_compare_both_with_each_and_the_highest_distractor_in_order_of_rank():
    made = cases(TWO, random.Random(0))
    assert made["best"] == (1, 3)
    assert made["both"] == (1, 3)
    assert made["part 0"] == (0, 1)
    assert made["part 1"] == (0, 3)
    assert made["duplicate"] == (1, 3, 5)  # the copy is one candidate more
    assert made["irrelevant"] in {(1, 3, 2), (1, 3, 4)}
    assert (made["ordered"], made["reversed"]) == ((1, 3), (3, 1))


@pytest.mark.parametrize(
    ("holds", "evidence"),
    [([{0}, set()], 1), ([{0, 1}, set()], 2), ([{0}, {1}, {2}, set()], 3), ([{0}, {1}], 2), ([{0}, {1}, set()], 3)],
)
def test_only_questions_that_exactly_two_chunks_answer_are_asked_for_both(holds, evidence):
    made = cases(asked_of(holds, evidence=evidence), random.Random(0))
    assert "both" not in made
    assert {"best", "duplicate"} <= set(made)


RAW = {"best": 1.0, "duplicate": 1.0, "irrelevant": 0.9, "both": 1.0, "part 0": 0.5, "part 1": 0.9}
ORDER = {"ordered": 0.3, "reversed": 0.2}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (True, True, True, True)),
        ({"part 1": 1.0}, (False, True, True, True)),
        ({"part 0": 1.2}, (False, True, True, True)),
        ({"irrelevant": 1.0}, (True, False, True, True)),
        ({"duplicate": 1.1}, (True, True, False, True)),
        ({"duplicate": 0.2}, (True, True, True, True)),
        ({"ordered": 0.2}, (True, True, True, False)),
    ],
)
def test_a_check_holds_by_the_scores_and_a_tie_is_no_win(changes, expected):
    found = sense("several", RAW | ORDER | changes, order_sensitive=True)
    assert (found.both, found.irrelevant, found.duplicate, found.order) == expected


def test_what_a_question_does_not_put_is_none_and_order_where_the_score_is_blind_to_it():
    assert sense("joined", RAW | ORDER, order_sensitive=False).order is None
    found = sense("single", {"best": 1.0, "duplicate": 1.0}, order_sensitive=True)
    assert (found.both, found.irrelevant, found.order) == (None, None, None)


class Additive:
    """The sum of the chunks' ids, each a tenth as much as it would be one place before."""

    order_sensitive = True

    def __init__(self):
        self.prepared = []

    def prepare(self, query, candidates, rows):
        self.prepared.append((query, [chunk.chunk_id for chunk in candidates], list(rows)))
        return [chunk.chunk_id for chunk in candidates]

    def score(self, pairs):
        values = [sum(ids[number] / 10**place for place, number in enumerate(chosen)) for ids, chosen in pairs]
        return [Score(value, 0.5) for value in values]


def test_a_reranker_is_judged_on_its_own_scores_with_the_copy_as_one_more_candidate():
    reranker = Additive()
    [found], rate = judge([TWO], reranker)
    assert reranker.prepared == [("why?", [0, 1, 2, 3, 4, 3], [0, 1, 2, 3, 4, 3])]
    # 1 + .3 against 0 + .1 and 0 + .3; anything added raises the score; 1 + .3 against 3 + .1.
    assert (found.both, found.irrelevant, found.duplicate, found.order) == (True, False, False, False)
    assert rate > 0
    assert judge([], reranker)[0] == []


def test_what_is_prepared_already_is_not_prepared_again():
    reranker = Additive()
    asked = [TWO] * 40
    found, _ = judge(asked, reranker, prepare=lambda number: [0, 1, 2, number, 4, number])
    assert reranker.prepared == []
    assert [one.both for one in found] == [1 + number / 10 > max(0.1, number / 10) + 1e-6 for number in range(40)]


def test_figures_are_shares_by_kind_with_intervals_and_what_was_measured():
    good, bad = sense("several", RAW, True), sense("several", RAW | {"part 0": 2.0}, True)
    shown = figures(
        [good, good, good, bad, sense("joined", RAW, True), sense("single", {"best": 1, "duplicate": 2}, True)]
    )
    assert shown["both_several"]["share"] == 0.75
    assert shown["both_several"]["questions"] == 4
    assert shown["both_several"]["low"] <= 0.75 <= shown["both_several"]["high"]
    assert shown["both_joined"] == {"share": 1.0, "low": None, "high": None, "questions": 1}
    assert shown["irrelevant"]["questions"] == 5
    assert shown["duplicate"]["share"] == pytest.approx(5 / 6, abs=1e-4)
    assert shown["order"] == {"share": None, "low": None, "high": None, "questions": 0}
