"""The ranking losses by hand: kinds of pairs, their weights and their shares, and labels."""

import math

import pytest
import torch
from made_questions import asked_of

from jobs.combination.loss import SHARES, evidence_loss, label_loss, ranking_loss

LN2 = math.log(2)


def loss(logits, merits, real=None):
    logits, merits = torch.tensor([logits], dtype=torch.float32), torch.tensor([merits], dtype=torch.float32)
    kept = torch.ones_like(logits, dtype=torch.bool) if real is None else torch.tensor([real])
    return float(ranking_loss(logits, merits, kept))


def test_the_better_one_is_to_stand_higher_by_a_logistic_loss_and_padding_counts_for_nothing():
    # Evidence 1 and 0, and a padded place; the worse one stands a whole logit higher.
    merits = [(1, 0, 0, 0), (0, 0, 0, 0), (0, 9, 9, 9)]
    assert loss([2.0, 3.0, 9.0], merits, [True, True, False]) == pytest.approx(math.log(1 + math.e))


def test_pairs_of_evidence_count_by_the_root_of_the_difference():
    # Shares 1, 3/4 and 0 with logits 1, 2 and 0: only the pair of weight sqrt(1/4) stands wrongly.
    weighed = {0.5: 1.0, 1.0: -1.0, math.sqrt(0.75): -2.0}
    expected = sum(w * math.log(1 + math.exp(wrong)) for w, wrong in weighed.items()) / sum(weighed)
    assert loss([1.0, 2.0, 0.0], [(1, 0, 0, 0), (0.75, 0, 0, 0), (0, 0, 0, 0)]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("better", "worse", "kind"),
    [
        ((1, 5, 5, 5), (0.5, 0, 0, 0), "evidence"),
        ((1, 0, 0, 0), (1, 1, 0, 0), "irrelevant"),
        ((1, 0, 0, 0), (1, 1, 1, 0), "irrelevant"),
        ((1, 0, 1, 0), (1, 2, 0, 0), "irrelevant"),
        ((0, 1, 0, 3), (0, 1, 1, 0), "repeated"),
        ((0.5, 1, 1, 0), (0.5, 1, 1, 2), "order"),
    ],
)
def test_a_pair_is_of_the_first_kind_in_which_it_differs(better, worse, kind):
    expected = SHARES[kind] * math.log(1 + math.exp(-3))
    assert loss([4.0, 1.0], [better, worse]) == pytest.approx(expected, rel=1e-5)
    assert loss([1.0, 4.0], [worse, better]) == pytest.approx(expected, rel=1e-5)


def test_a_kind_weighs_its_share_however_many_pairs_it_has():
    # Seven pairs of evidence and one of a repeated chunk, all undecided.
    merits = [(1, 0, 0, 0), (1, 0, 1, 0), *[(0, 0, 0, 0)] * 3]
    assert loss([0.0] * 5, merits) == pytest.approx((SHARES["evidence"] + SHARES["repeated"]) * LN2)


def test_chunks_in_vain_weigh_more_beside_more_evidence():
    # An irrelevant chunk beside all evidence (weight 5/4) stands wrongly, one beside none (1/4) rightly.
    merits = [(1, 0, 0, 0), (1, 1, 0, 0), (0, 0, 0, 0), (0, 1, 0, 0)]
    vain = (1.25 * math.log(1 + math.exp(2)) + 0.25 * math.log(1 + math.exp(-2))) / 1.5
    wrong_way = [7.0, 9.0, 2.0, 0.0]
    evidence = sum(math.log(1 + math.exp(-(one - other))) for one in (7, 9) for other in (2, 0)) / 4
    assert loss(wrong_way, merits) == pytest.approx(evidence + SHARES["irrelevant"] * vain, rel=1e-5)


def test_equal_merits_ask_for_no_order():
    assert loss([5.0, 1.0], [(1, 1, 0, 0), (1, 1, 0, 0)]) == 0
    assert loss([5.0, 1.0], [(1, 2, 0, 0), (1, 0, 2, 0)]) == 0  # as many in vain, of other kinds


def test_by_labels_the_higher_one_is_to_stand_higher_where_they_differ_by_more_than_the_threshold():
    # Of three pairs, -1 and -1.05 are alike; the other two lie a logit apart, one in its right order.
    logits = torch.tensor([[2.0, 1.0, 3.0, 50.0], [7.0, 7.0, 0.0, 0.0]])
    labels = [[-1.0, -4.0, -1.05], [-2.0, -3.0]]  # behind them is padding
    right, wider, tied = math.log(1 + math.exp(-1)), math.log(1 + math.exp(-2)), LN2
    assert float(label_loss(logits, labels, 0.1)) == pytest.approx((right + wider + tied) / 3)
    wrong = math.log(1 + math.e)
    assert float(label_loss(logits, labels, 0.01)) == pytest.approx((right + wider + tied + wrong) / 4)
    assert float(label_loss(logits, labels, 9.0)) == 0


def test_evidence_ranks_and_its_grade_anchors_the_logit():
    asked = asked_of([{0}, set()])
    # Grades 1 and 0 with logits 2 and -1, a pair of evidence; the third place is padding.
    logits = torch.tensor([[2.0, -1.0, 9.0]])
    ranked = math.log(1 + math.exp(-3))
    anchored = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-1))) / 2
    found = evidence_loss(logits, [asked], [[(0,), ()]], anchor=0.5)
    assert float(found) == pytest.approx(ranked + 0.5 * anchored, rel=1e-5)
