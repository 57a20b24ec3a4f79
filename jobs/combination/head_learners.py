"""What a set head can learn from: evidence, a generator's likelihoods, or both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from corag_ray.models.set_head import SetHead
from jobs.combination.checkpoint import Example, Recipe
from jobs.combination.labels import Labelled
from jobs.combination.lessons import drawn
from jobs.combination.loss import evidence_loss, label_loss
from jobs.combination.training import batches, logits_of


@dataclass(frozen=True, slots=True)
class ByEvidence:
    """Evidence says which of two combinations is better, as in `training.train`, but that nothing is mined."""

    model: SetHead
    examples: Sequence[Example]
    recipe: Recipe

    @property
    def steps_a_pass(self) -> int:
        """Steps that take every question once."""
        return math.ceil(len(self.examples) / self.recipe.batch)

    def loss(self, step: int) -> Tensor:
        """Of the questions whose turn it is."""
        epoch, place = divmod(step, self.steps_a_pass)
        chosen = [self.examples[number] for number in batches(self.examples, self.recipe, epoch)[place]]
        asked = [example.asked for example in chosen]
        combinations = [drawn(one, self.recipe.seed, epoch) for one in asked]
        logits = logits_of(self.model, [example.matches for example in chosen], combinations)
        return evidence_loss(logits, asked, combinations, self.recipe.anchor)


@dataclass(frozen=True, slots=True)
class ByLikelihood:
    """The generator says it: by how likely the reference answer is to it after each combination.

    Attributes:
        model: the head.
        examples: questions that have labels.
        labels: theirs, in the same order.
        recipe: of the head; its anchor, which is of evidence, is not used.
        threshold: of differences that count, in nats a token of the answer.
    """

    model: SetHead
    examples: Sequence[Example]
    labels: Sequence[Labelled]
    recipe: Recipe
    threshold: float

    @property
    def steps_a_pass(self) -> int:
        """Steps that take every labelled question once."""
        return math.ceil(len(self.examples) / self.recipe.batch)

    def loss(self, step: int) -> Tensor:
        """Of the questions whose turn it is."""
        epoch, place = divmod(step, self.steps_a_pass)
        numbers = batches(self.examples, self.recipe, epoch)[place]
        labels = [self.labels[number] for number in numbers]
        matches = [self.examples[number].matches for number in numbers]
        logits = logits_of(self.model, matches, [one.combinations for one in labels])
        return label_loss(logits, [one.log_likelihoods for one in labels], self.threshold)


@dataclass(frozen=True, slots=True)
class ByBoth:
    """Each step takes some questions with evidence and some labelled ones; a pass is one over the former.

    Attributes:
        evidence: the one teacher; of the same head as the other.
        likelihood: the other one.
        weight: of the other one's loss beside the first one's.
    """

    evidence: ByEvidence
    likelihood: ByLikelihood
    weight: float

    @property
    def model(self) -> SetHead:
        """The head that both teach."""
        return self.evidence.model

    @property
    def steps_a_pass(self) -> int:
        """Steps that take every question with evidence once."""
        return self.evidence.steps_a_pass

    def loss(self, step: int) -> Tensor:
        """The sum of both."""
        return self.evidence.loss(step) + self.weight * self.likelihood.loss(step)
