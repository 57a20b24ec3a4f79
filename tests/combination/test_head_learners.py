"""A set head's teachers, on made-up vectors in which evidence can be told from the rest."""

import itertools

import pytest
import torch
from made_questions import DIM, made_example

from corag_ray.models.set_head import HeadShape, SetHead
from jobs.combination.checkpoint import Recipe
from jobs.combination.examples import grade
from jobs.combination.head_learners import ByBoth, ByEvidence, ByLikelihood
from jobs.combination.labels import Labelled
from jobs.combination.lessons import few
from jobs.combination.timed import Terms, train_for
from jobs.combination.training import logits_of

EXAMPLES = [made_example(seed) for seed in range(24)]
NEW = [made_example(seed) for seed in range(100, 130)]
SHAPE = HeadShape(DIM, projected=8, width=16, heads=2, hidden=16)
RECIPE = Recipe(SHAPE, batch=8, dropout=0.0)


def head():
    torch.manual_seed(0)
    return SetHead(SHAPE)


def labels_of(example, sign):
    chosen = tuple(few(example.asked, 0, 0, 6))
    return Labelled(chosen, tuple(sign * grade(example.asked, one) for one in chosen), 0.0)


def by_likelihood(model, sign, recipe=RECIPE, threshold=0.05):
    return ByLikelihood(model, EXAMPLES, [labels_of(example, sign) for example in EXAMPLES], recipe, threshold)


def preferring_all_evidence(learner, path):
    """Of 30 new questions, those whose ideal combination stands above the first half of it, after 30 steps."""
    ticks = itertools.count()
    train_for(learner, 1e-2, Terms(30, 99), path, "", lambda: 0.0, clock=lambda: next(ticks))
    chosen = [[example.asked.ideal(), example.asked.ideal()[:1]] for example in NEW]
    logits = logits_of(learner.model, [example.matches for example in NEW], chosen)
    return int((logits[:, 0] > logits[:, 1]).sum())


def test_evidence_teaches_to_prefer_all_of_it(tmp_path):
    assert preferring_all_evidence(ByEvidence(head(), EXAMPLES, RECIPE), tmp_path / "c.pt") >= 22  # 15 by chance


def test_labels_teach_what_they_say_and_not_what_evidence_says(tmp_path):
    assert preferring_all_evidence(by_likelihood(head(), 1), tmp_path / "right.pt") >= 22
    assert preferring_all_evidence(by_likelihood(head(), -1), tmp_path / "wrong.pt") <= 8


def test_labels_within_the_threshold_teach_nothing():
    learner = by_likelihood(head(), 1, threshold=2.0)  # grades lie in -.6 to 1
    assert float(learner.loss(0).detach()) == 0


def test_both_teachers_are_added_by_weight_each_in_its_own_passes():
    model = head().eval()
    evidence = ByEvidence(model, EXAMPLES, RECIPE)
    likelihood = by_likelihood(model, 1, Recipe(SHAPE, batch=5, dropout=0.0))
    assert (evidence.steps_a_pass, likelihood.steps_a_pass) == (3, 5)
    both = ByBoth(evidence, likelihood, 0.5)
    assert both.model is model
    assert both.steps_a_pass == 3
    for step in (0, 4):
        expected = float(evidence.loss(step).detach()) + 0.5 * float(likelihood.loss(step).detach())
        assert float(both.loss(step).detach()) == pytest.approx(expected, rel=1e-5)
