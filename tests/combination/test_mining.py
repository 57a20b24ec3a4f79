"""What a head wrongly prefers is found by searches that maximise its score."""

import pytest
import torch
from made_questions import DIM, asked_of, made_example

from corag_ray.models.set_head import HeadShape, SetHead
from corag_ray.models.torch_setup import Compute
from jobs.combination.examples import MAX_CHUNKS, grade
from jobs.combination.mining import KEPT, mine, mistakes

TWO = asked_of([{0}, {1}, set(), set()])


def test_mistakes_are_the_highest_of_those_that_score_no_lower_than_the_ideal_and_are_worse():
    scored = {(0, 1): 0.5, (0, 2): 0.9, (2,): 0.5, (3,): 0.4, (0,): 0.7, (0, 1, 3): 0.8, (1, 0): 0.95}
    assert mistakes(TWO, scored, 0.5) == [(0, 2), (0, 1, 3), (0,), (2,)]
    many = {(0, place): 0.6 + place / 100 for place in range(2, 4)} | {(place, 0): 0.8 for place in range(2, 4)}
    assert len(mistakes(TWO, many | scored, 0.5)) == KEPT
    assert mistakes(TWO, {(0, 1): 0.9, (0,): 0.4}, 0.5) == []


def test_combinations_longer_than_trained_are_no_mistakes_to_learn_from():
    asked = asked_of([{0}, {1}, *[set()] * 6])
    assert mistakes(asked, {tuple(range(MAX_CHUNKS + 1)): 0.9, tuple(range(MAX_CHUNKS)): 0.8}, 0.5) == [
        tuple(range(MAX_CHUNKS))
    ]


@pytest.mark.parametrize("numbers", [[0, 1, 2, 3, 4, 5], [5, 2]])
def test_searches_with_a_head_find_what_it_prefers_to_the_ideal(numbers):
    torch.manual_seed(0)
    head = SetHead(HeadShape(DIM, projected=8, width=16, heads=2, hidden=16)).eval()
    head.nearness.data.neg_()  # it prefers what is far from the question
    examples = [made_example(seed) for seed in range(6)]
    found = mine(examples, numbers, head, None, Compute(1))
    assert found
    assert set(found) <= set(numbers)
    for number, wrong in found.items():
        example = examples[number]
        rows = head.rows(example.matches.as_type("float32")).half().float()
        best = example.asked.ideal()
        with torch.inference_mode():
            scores = [head(rows[[0, *(1 + n for n in chosen)]][None]).item() for chosen in (*wrong, best)]
        assert all(score >= scores[-1] - 1e-5 for score in scores[:-1])
        assert all(grade(example.asked, chosen) < grade(example.asked, best) for chosen in wrong)
        assert 0 < len(wrong) <= KEPT
    assert found == mine(examples, numbers, head, None, Compute(1))
