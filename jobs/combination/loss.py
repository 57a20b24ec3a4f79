"""The ranking losses: of every two combinations of a question the better one is to stand higher.

Which is the better one, evidence tells, or another teacher's labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from corag_ray.types import Combination
from jobs.combination.examples import Asked, grade, merit

SHARES: Mapping[str, float] = {"evidence": 1.0, "irrelevant": 0.5, "repeated": 0.5, "order": 0.1}
"""What each kind of pair weighs in the loss, however many there are of it.

By its grade alone, a chunk in vain weighs a twelfth of what evidence does, and one pair of combinations in ten differs
by nothing else: a head trained by that learned that more chunks are better.
"""


def evidence_loss(
    logits: Tensor, asked: Sequence[Asked], chosen: Sequence[Sequence[Combination]], anchor: float
) -> Tensor:
    """`ranking_loss` by evidence, and a cross entropy, weighted by `anchor`, that ties a logit to its grade.

    `logits` are [questions, most combinations], those behind a question's last combination padding.
    """
    grades, real = torch.zeros_like(logits), torch.zeros_like(logits, dtype=torch.bool)
    merits = torch.zeros(*logits.shape, 4)
    for place, (one, combinations) in enumerate(zip(asked, chosen, strict=True)):
        end = len(combinations)
        grades[place, :end] = torch.tensor([grade(one, combination) for combination in combinations])
        merits[place, :end] = torch.tensor([merit(one, combination) for combination in combinations])
        real[place, :end] = True
    anchored = functional.binary_cross_entropy_with_logits(logits[real], grades[real].clamp(0, 1))
    return ranking_loss(logits, merits, real) + anchor * anchored


def label_loss(logits: Tensor, labels: Sequence[Sequence[float]], threshold: float) -> Tensor:
    """RankNet by labels: the mean over the batch's pairs whose labels differ by more than `threshold`; 0 without any.

    `logits` are [questions, most combinations], those behind a question's last label padding.
    """
    stacked = torch.full_like(logits, torch.nan)  # no comparison with it holds
    for place, of_question in enumerate(labels):
        stacked[place, : len(of_question)] = torch.tensor(of_question)
    pairs = stacked[:, :, None] - stacked[:, None, :] > threshold
    losses = functional.softplus(logits[:, None, :] - logits[:, :, None])
    return (losses * pairs).sum() / pairs.sum().clamp(min=1)


def ranking_loss(logits: Tensor, merits: Tensor, real: Tensor) -> Tensor:
    """RankNet (Burges et al., 2005), a logistic loss on the difference of two logits, by kinds of pairs.

    A pair is of the first kind in which its combinations differ: in the evidence that they cover, in chunks in vain
    (irrelevant ones if they differ in those, else repeated ones), in order. Each kind's loss is a mean over its pairs
    of the whole batch, weighted: pairs of evidence by the root of the difference, the others by the evidence that both
    cover, and a quarter; the kinds are added by their `SHARES`.

    Args:
        logits: [questions, combinations].
        merits: [questions, combinations, 4], as `examples.Merit` orders them.
        real: [questions, combinations] false where there is padding.
    """
    covered, irrelevant, repeated, turned = (merits[:, :, None] - merits[:, None, :]).unbind(dim=-1)
    both = real[:, :, None] & real[:, None, :]
    vain = irrelevant + repeated
    alike = both & (covered.abs() < 1e-6)
    clean = alike & (irrelevant == 0) & (repeated == 0)
    held = merits[:, :, None, 0] + 0.25
    kinds = {
        "evidence": both * covered.clamp(min=0).sqrt(),
        "irrelevant": held * (alike & (irrelevant != 0) & (vain < 0)),
        "repeated": held * (alike & (irrelevant == 0) & (repeated < 0)),
        "order": held * (clean & (turned < 0)),
    }
    losses = functional.softplus(logits[:, None, :] - logits[:, :, None])
    parts = [SHARES[kind] * (losses * pairs).sum() / pairs.sum().clamp(min=1e-9) for kind, pairs in kinds.items()]
    return torch.stack(parts).sum()
