"""Targets worked by hand, combinations of every grade."""

import itertools
import random

import pytest
from made_questions import asked_of

from jobs.combination.examples import MAX_CHUNKS, combinations_of, grade, in_vain, merit, neighbours

# Candidates 0 and 3 hold one of two pieces of evidence each, 1 and 2 none, 4 the same as 0; 3 stands before 5 in "e".
TWO = asked_of([{0}, set(), set(), {1}, {0}, set()], [("a", 0), ("b", 0), ("c", 0), ("e", 4), ("f", 0), ("e", 5)])
VAIN = 1 / 24
"""A chunk in vain costs a twelfth of one piece's share, which is a half."""


@pytest.mark.parametrize(
    ("combination", "expected"),
    [
        ((0, 3), 1),
        ((3, 0), 1),  # of two documents: no order is the better one
        ((0,), 1 / 2),
        ((), 0),
        ((0, 3, 1), 1 - VAIN),
        ((1, 0, 2, 3), 1 - 2 * VAIN),
        ((0, 0, 3), 1 - VAIN),  # the same chunk twice
        ((0, 4, 3), 1 - VAIN),  # another chunk of the same evidence
        ((0, 1), 1 / 2 - VAIN),
        ((1,), -VAIN),
        ((1, 2), -2 * VAIN),
        ((0, 3, 5), 1 - VAIN),
        ((0, 5, 3), 1 - VAIN - VAIN / 16),  # 5 follows 3 in their document
        ((5, 0, 3), 1 - VAIN - VAIN / 16),
    ],
)
def test_a_grade_is_the_covered_share_less_chunks_in_vain_less_order(combination, expected):
    assert grade(TWO, combination) == pytest.approx(expected, abs=1e-12)


def test_evidence_that_no_candidate_holds_counts_as_missing():
    assert grade(asked_of([{0}, {1}], evidence=4), (0, 1)) == 1 / 2


@pytest.mark.parametrize(
    ("combination", "expected"),
    [
        ((0, 3), (1, 0, 0, 0)),
        ((0, 1, 0), (1 / 2, 1, 1, 0)),  # 1 holds nothing, the second 0 is a copy
        ((1, 1), (0, 1, 1, 0)),  # a copy is repeated, whatever it holds
        ((4, 0), (1 / 2, 0, 1, 0)),  # another chunk of the same evidence
        ((5, 3, 2), (1 / 2, 2, 0, 1)),
        ((), (0, 0, 0, 0)),
    ],
)
def test_merit_counts_evidence_chunks_in_vain_by_kind_and_turned_pairs(combination, expected):
    assert merit(TWO, combination) == expected


@pytest.mark.parametrize("seed", range(20))
def test_a_chunk_in_vain_is_a_copy_or_an_irrelevant_one_more_and_nothing_else(seed):
    for combination in ((0, 3), (4,), (2, 1)):
        copied, irrelevant = in_vain(TWO, combination, random.Random(seed))
        before = merit(TWO, combination)
        assert merit(TWO, copied)[:3] == (before.covered, before.irrelevant, before.repeated + 1)
        assert merit(TWO, irrelevant)[:3] == (before.covered, before.irrelevant + 1, before.repeated)
        assert sorted(set(copied)) == sorted(combination)
    assert in_vain(asked_of([{0}]), (), random.Random(seed)) == []


def test_chunks_in_vain_stand_at_every_place_and_half_of_them_at_the_end():
    made = [in_vain(TWO, (0, 3), random.Random(seed)) for seed in range(200)]
    for place in (0, 1):
        found = [next(i for i, n in enumerate(irrelevant) if n in (1, 2, 5)) for _, irrelevant in made]
        assert found.count(place) >= 20
    assert 110 <= found.count(2) <= 160  # 2/3 = 1/2 + 1/2 of a third: 133


def test_the_highest_distractor_comes_more_often_than_others():
    asked = asked_of([{0}, *[set()] * 19])
    numbers = [in_vain(asked, (0,), random.Random(seed))[1] for seed in range(300)]
    added = [next(number for number in combination if number) for combination in numbers]
    assert 100 <= added.count(1) <= 155  # 1/3 + 1/15 + 1/57 of 300: 125
    assert set(added) > set(range(1, 15))


@pytest.mark.parametrize("evidence", [1, 2, 3, 4])
def test_more_evidence_outweighs_chunks_in_vain_and_these_outweigh_order(evidence):
    holds = [{number} for number in range(evidence)] + [set()] * 6
    asked = asked_of(holds, [("one", number) for number in range(len(holds))])
    by_rank = {}
    for size in range(4):
        for combination in itertools.permutations(range(len(holds)), size):
            covered = sum(number < evidence for number in combination)
            by_rank.setdefault((covered, covered - size), []).append(grade(asked, combination))
    longest = tuple(reversed(range(evidence, evidence + 6)))  # six in vain, all against the order
    by_rank[0, -6] = [grade(asked, longest)]
    by_rank[1, -5] = [grade(asked, (*longest[:5], 0))]
    ranks = sorted(by_rank)
    for lower, higher in itertools.pairwise(ranks):
        assert max(by_rank[lower]) < min(by_rank[higher])


def test_the_ideal_takes_the_fewest_by_rank_and_stands_in_document_order():
    asked = asked_of([{0}, set(), {0, 1}, {2}, {0}], [("a", 0), ("b", 0), ("e", 9), ("e", 3), ("f", 0)])
    assert asked.ideal() == (3, 2)
    assert TWO.ideal() == (0, 3)
    assert asked_of([set(), set()], evidence=1).ideal() == ()
    assert TWO.right() == [0, 3, 4]
    assert TWO.wrong() == [1, 2, 5]


@pytest.mark.parametrize("seed", range(20))
def test_combinations_of_a_question_are_of_all_grades_and_no_longer_than_trained(seed):
    made = combinations_of(TWO, random.Random(seed))
    assert all(len(combination) <= MAX_CHUNKS and set(combination) <= set(range(6)) for combination in made)
    grades = {grade(TWO, combination) for combination in made}
    assert {0, 1, 1 / 2} <= grades
    assert {round(value, 9) for value in grades} >= {round(1 - VAIN, 9), round(-VAIN, 9)}
    assert any(len(set(combination)) < len(combination) for combination in made)
    assert made == combinations_of(TWO, random.Random(seed))


@pytest.mark.parametrize("holds", [[{0}], [{0}, {0}], [{0}, {1}, {2}, {3}], [set(), {0}]])
def test_questions_of_few_candidates_give_combinations_too(holds):
    asked = asked_of(holds)
    for seed in range(20):
        assert asked.ideal() in combinations_of(asked, random.Random(seed))


def test_neighbours_are_of_one_document_with_evidence_if_possible_in_its_order_first():
    assert {tuple(neighbours(TWO, random.Random(seed))) for seed in range(9)} == {((3, 5), (5, 3))}
    asked = asked_of([set(), {0}, set()], [("a", 7), ("b", 0), ("a", 2)])
    assert neighbours(asked, random.Random(0)) == [(2, 0), (0, 2)]
    assert neighbours(asked_of([{0}, set()]), random.Random(0)) == []
