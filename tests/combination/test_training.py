"""Training on made-up vectors: the fall of the loss, the best pass, mined mistakes, and resume."""

import random

import numpy as np
import pytest
from made_questions import DIM, asked_of, made_example

from corag_ray.errors import DataError
from corag_ray.models.set_head import HeadShape, SetHead
from corag_ray.models.token_matches import TokenMatches
from jobs.combination.checkpoint import Recipe
from jobs.combination.examples import combinations_of, grade
from jobs.combination.training import batches, logits_of, train

EXAMPLES = [made_example(seed) for seed in range(12)]
SHAPE = HeadShape(DIM, projected=8, width=16, heads=2, hidden=16)
RECIPE = Recipe(SHAPE, epochs=3, batch=4, learning_rate=1e-2, mined=5)


class Stopped(Exception):
    """The run was killed."""


def trained(checkpoint, recipe=RECIPE, examples=EXAMPLES, stop_after=None, judge=lambda head: 0.0):
    mined_with = []

    def mine(head, numbers, epoch):
        mined_with.append((epoch, tuple(numbers)))
        return {number: [(epoch,)] for number in numbers}

    def watch(state, total):
        if state.step == stop_after:
            raise Stopped

    found = train(examples, recipe, checkpoint, judge, mine, watch)
    return found, mined_with


def weights(found):
    return {name: tensor.numpy() for name, tensor in found.head.state_dict().items()}


def assert_same(one, other):
    assert list(one) == list(other)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def test_a_steps_logits_are_those_of_each_combination_alone():
    head = SetHead(SHAPE).eval()
    examples = [*EXAMPLES[:2], made_example(99, candidates=4)]
    matches = [example.matches.as_type(np.float32) for example in examples]
    one = matches[1]  # a token less, so that there is padding
    matches[1] = TokenMatches(one.query[:4].copy(), one.nearest[:, :4].copy(), one.cosines[:, :4].copy())
    chosen = [[(0, 1), (1, 0), ()], [(5,)], [(0, 1, 2, 3, 3, 0), (2,)]]
    logits = logits_of(head, matches, chosen).detach()
    assert logits.shape == (3, 3)
    for owner, combinations in enumerate(chosen):
        rows = head.rows(matches[owner])
        for place, combination in enumerate(combinations):
            alone = head(rows[[0, *(1 + number for number in combination)]][None])
            assert float(logits[owner, place]) == pytest.approx(float(alone.detach()), abs=1e-5)
        assert (logits[owner, len(combinations) :] == 0).all()


def test_a_few_steps_on_made_up_vectors_lower_the_loss_and_rank_new_questions(tmp_path):
    examples = [made_example(seed) for seed in range(24)]
    recipe = Recipe(SHAPE, epochs=10, batch=8, learning_rate=1e-2, mined=0)
    found, _ = trained(tmp_path / "c.pt", recipe, examples)
    assert np.mean(found.losses[-3:]) < 0.8 * np.mean(found.losses[:3])
    new = [made_example(seed) for seed in range(100, 130)]
    chosen = [[example.asked.ideal(), example.asked.ideal()[:1]] for example in new]
    logits = logits_of(found.head, [example.matches for example in new], chosen)
    assert int((logits[:, 0] > logits[:, 1]).sum()) >= 22  # 15 by chance


def test_every_pass_takes_every_question_once_in_another_order():
    first, second = batches(EXAMPLES, RECIPE, 0), batches(EXAMPLES, RECIPE, 1)
    for batch_list in (first, second):
        assert sorted(number for batch in batch_list for number in batch) == list(range(12))
    assert first != second
    assert [len(batch) for batch in first] == [4, 4, 4]
    assert first == batches(EXAMPLES, RECIPE, 0)


def test_mistakes_are_mined_before_each_pass_but_the_first_of_as_many_questions_as_told(tmp_path):
    found, mined_with = trained(tmp_path / "c.pt")
    assert [epoch for epoch, _ in mined_with] == [1, 2]
    assert all(len(set(numbers)) == 5 for _, numbers in mined_with)
    assert mined_with[0][1] != mined_with[1][1]
    assert found.mined == {number: [(epoch,)] for epoch, numbers in mined_with for number in numbers}


def test_mined_combinations_are_trained_on(tmp_path):
    plain, _ = trained(tmp_path / "plain.pt", Recipe(SHAPE, epochs=3, batch=4, learning_rate=1e-2, mined=0))
    found, _ = trained(tmp_path / "mined.pt")
    assert found.losses[:3] == plain.losses[:3]
    assert found.losses[3:] != plain.losses[3:]


def test_a_run_killed_in_its_first_step_after_mining_does_not_mine_again(tmp_path):
    whole, _ = trained(tmp_path / "whole.pt")
    with pytest.raises(Stopped):
        trained(tmp_path / "c.pt", stop_after=4)  # three steps a pass; the next save would be after the sixth
    resumed, mined_with = trained(tmp_path / "c.pt")
    assert [epoch for epoch, _ in mined_with] == [2]
    assert resumed.losses == whole.losses


@pytest.mark.parametrize("stop_after", [3, 4, 5, 6])
def test_a_run_that_goes_on_after_a_kill_ends_as_an_uninterrupted_one(tmp_path, stop_after, monkeypatch):
    monkeypatch.setattr("jobs.combination.training.SAVE_STEPS", 2)
    values = iter([0.5, 0.7, 0.6])
    whole, _ = trained(tmp_path / "whole.pt", judge=lambda head: next(values))
    values = iter([0.5, 0.7, 0.6])
    with pytest.raises(Stopped):
        trained(tmp_path / "c.pt", stop_after=stop_after, judge=lambda head: next(values))
    resumed, _ = trained(tmp_path / "c.pt", judge=lambda head: next(values))
    assert resumed.losses == whole.losses
    assert resumed.judged == whole.judged == [0.5, 0.7, 0.6]
    assert resumed.mined == whole.mined
    assert_same(weights(resumed), weights(whole))


def test_the_seed_decides_and_the_head_of_the_best_pass_is_kept(tmp_path):
    kept = []

    def judge(head):
        kept.append({name: tensor.clone().numpy() for name, tensor in head.state_dict().items()})
        return [0.2, 0.9, 0.4][len(kept) - 1]

    found, _ = trained(tmp_path / "c.pt", judge=judge)
    assert_same(weights(found), kept[1])
    assert not found.head.training
    other, _ = trained(tmp_path / "other.pt", Recipe(SHAPE, seed=1, epochs=3, batch=4, learning_rate=1e-2, mined=5))
    assert other.losses != found.losses


def test_a_checkpoint_of_another_recipe_or_of_other_questions_is_refused(tmp_path):
    trained(tmp_path / "c.pt")
    for recipe, examples in [(Recipe(SHAPE, epochs=4, batch=4), EXAMPLES), (RECIPE, EXAMPLES[:-1])]:
        with pytest.raises(DataError, match=r"c\.pt is of a run with other data or another recipe"):
            trained(tmp_path / "c.pt", recipe, examples)
    (tmp_path / "c.pt").write_bytes(b"no checkpoint")
    with pytest.raises(DataError, match="is no checkpoint that can be read"):
        trained(tmp_path / "c.pt")


def test_made_up_questions_have_all_grades():
    grades = [grade(EXAMPLES[0].asked, c) for c in combinations_of(EXAMPLES[0].asked, random.Random(0))]
    assert {0, 0.5, 1} <= set(grades)
    assert asked_of([{0}, {1}]).evidence == 2
