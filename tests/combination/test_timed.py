"""Training by the clock, with a clock that moves a second a step."""

import math

import pytest
import torch
from torch import nn

from corag_ray.errors import DataError
from jobs.combination.timed import Run, Terms, rate, train_for


class Ticks:
    """A second later each time it is asked: a step, which asks twice, takes one."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1
        return self.now


class Parabola:
    """A number that learns to be 3, another that stays, and dropout to see its seed."""

    steps_a_pass = 3

    def __init__(self):
        self.model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Dropout(0.5))
        nn.init.zeros_(self.model[0].weight)
        self.model.register_parameter("still", nn.Parameter(torch.ones(1), requires_grad=False))
        self.modes = []

    def loss(self, step):
        self.modes.append(self.model.training)
        return ((self.model(torch.ones(8, 1)) - 3) ** 2).mean()


class Stopped(Exception):
    """The run was killed."""


def trained(path, terms, judge=lambda: 0.0, stop_after=None, clock=None, learner=None, identity="this"):
    learner = learner or Parabola()

    def watch(run, progress):
        if run.step == stop_after:
            raise Stopped

    return train_for(learner, 0.1, terms, path, identity, judge, watch, clock or Ticks()), learner


def test_a_training_ends_with_its_seconds_and_is_judged_at_each_quarter(tmp_path):
    seen, learner = [], Parabola()
    run, _ = trained(
        tmp_path / "c.pt", Terms(8, 99), lambda: seen.append(learner.model.training) or 0.0, None, None, learner
    )
    assert (run.step, run.seconds) == (8, 8.0)
    assert len(run.judged) == 4
    assert seen == [False] * 4  # judged out of training
    assert learner.modes == [True] * 8
    assert run.losses[-1] < run.losses[0]
    assert float(learner.model.still.detach()) == 1


def test_a_training_ends_before_its_seconds_after_the_most_passes(tmp_path):
    run, _ = trained(tmp_path / "c.pt", Terms(1000, most_passes=2))
    assert run.step == 2 * Parabola.steps_a_pass


def test_the_time_of_judging_does_not_count(tmp_path):
    clock = Ticks()

    def judge():
        clock.now += 100
        return 0.0

    run, _ = trained(tmp_path / "c.pt", Terms(8, 99), judge, clock=clock)
    assert (run.step, run.seconds) == (8, 8.0)


def test_a_step_that_passes_two_judgements_is_judged_once(tmp_path):
    run, _ = trained(tmp_path / "c.pt", Terms(2, 99))
    assert len(run.judged) == 2


def test_the_weights_that_were_judged_best_are_kept(tmp_path):
    learner, kept = Parabola(), []

    def judge():
        kept.append(float(learner.model[0].weight.detach()))
        return [0.2, 0.9, 0.4, 0.1][len(kept) - 1]

    trained(tmp_path / "c.pt", Terms(8, 99), judge, learner=learner)
    assert len(set(kept)) == 4
    assert float(learner.model[0].weight.detach()) == kept[1]
    assert not learner.model.training


@pytest.mark.parametrize("stop_after", [1, 4, 5, 7])
def test_a_training_that_goes_on_after_a_kill_ends_as_an_uninterrupted_one(tmp_path, monkeypatch, stop_after):
    monkeypatch.setattr("jobs.combination.timed.SAVE_SECONDS", 3.0)
    terms = Terms(8, 99, seed=5)
    whole, learner = trained(tmp_path / "whole.pt", terms)
    with pytest.raises(Stopped):
        trained(tmp_path / "c.pt", terms, stop_after=stop_after)
    resumed, other = trained(tmp_path / "c.pt", terms)
    assert resumed.losses == whole.losses
    assert resumed.seconds == whole.seconds
    assert torch.equal(learner.model[0].weight, other.model[0].weight)


def test_what_is_done_is_not_trained_again_and_another_trainings_checkpoint_is_refused(tmp_path):
    first, learner = trained(tmp_path / "c.pt", Terms(8, 99))
    again, other = trained(tmp_path / "c.pt", Terms(8, 99))
    assert other.modes == []
    assert again.losses == first.losses
    assert torch.equal(learner.model[0].weight, other.model[0].weight)
    with pytest.raises(DataError, match="is of a run with other data or another recipe"):
        trained(tmp_path / "c.pt", Terms(8, 99), identity="that")


def test_the_learning_rate_rises_for_a_twentieth_and_falls_as_a_cosine():
    assert rate(0) == 0.1
    assert rate(0.025) == pytest.approx(0.5)
    assert rate(0.05) == pytest.approx(0.5 * (1 + math.cos(0.05 * math.pi)))
    assert rate(0.5) == pytest.approx(0.5)
    assert rate(1) == pytest.approx(0)


def test_progress_is_the_greater_share_of_seconds_and_of_passes():
    assert Run(step=3, seconds=10).progress(Terms(100, 10), 2) == pytest.approx(3 / 20)
    assert Run(step=3, seconds=60).progress(Terms(100, 10), 2) == pytest.approx(0.6)
    assert Run(step=3, seconds=200).progress(Terms(100, 10), 2) == 1
