"""Training for so many CPU seconds, whatever it is that learns: what makes a contest of architectures fair.

Only steps count (drawing, forward, backward, optimiser), in processor time of all threads of this process: waiting for
a processor costs nothing. Work beside it still slows a core down (caches, two threads a core), so sides are to be
trained on a machine that is about as busy for each. Judging, saving, and what is computed once before (token matches,
labels) do not count. All draws depend on the seed; how many steps there are depends on the processor.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from jobs.combination import checkpoint as checkpoints

JUDGEMENTS = 4
"""At equal shares of a training, the last one at its end; the model that was judged best is kept."""
WARM = 0.05
"""Share of a training in which the learning rate rises."""
SAVE_SECONDS = 60.0
"""CPU seconds of training that a killed run loses, at most."""
Clock = Callable[[], float]


class Learner(Protocol):
    """A model and what it learns from, a step at a time."""

    @property
    def model(self) -> nn.Module:
        """What is trained: those of its parameters that ask for a gradient."""
        ...

    @property
    def steps_a_pass(self) -> int:
        """Steps that take every question once."""
        ...

    def loss(self, step: int) -> Tensor:
        """The loss of one step, counted from 0, to go backward from; it depends on nothing but the step."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """What every side of a contest is given.

    Attributes:
        seconds: CPU seconds of training.
        most_passes: over the questions; a side that has gone through so many ends before its seconds do.
        seed: of dropout.
        weight_decay: of AdamW.
    """

    seconds: float
    most_passes: int = 20
    seed: int = 0
    weight_decay: float = 0.01


@dataclass(slots=True)
class Run:
    """How far a training is.

    Attributes:
        step: steps done.
        seconds: CPU seconds spent on them.
        judgements: of `JUDGEMENTS`, those whose time has come.
        judged: what was judged, in order; fewer than `judgements` where a step passes two of them.
        losses: by step.
        best: weights of the model that was judged best.
    """

    step: int = 0
    seconds: float = 0.0
    judgements: int = 0
    judged: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    best: dict[str, Tensor] | None = None

    def progress(self, terms: Terms, steps_a_pass: int) -> float:
        """The share of the training that is done, 0..1: of its seconds or of its passes, whichever is more."""
        return min(1.0, max(self.seconds / terms.seconds, self.step / (terms.most_passes * steps_a_pass)))


def unwatched(run: Run, progress: float) -> None:
    """Where nobody looks."""


def train_for(
    learner: Learner,
    peak: float,
    terms: Terms,
    checkpoint: Path,
    identity: str,
    judge: Callable[[], float],
    watch: Callable[[Run, float], None] = unwatched,
    clock: Clock = time.process_time,
) -> Run:
    """Train under the terms, or go on where `checkpoint` stands; the model then has the weights that were judged best.

    `peak` is the learning rate's peak. `judge` says how good the model is, in evaluation mode, on questions that it
    does not learn from; higher is better. The checkpoint stays when all is done: asked again, nothing is trained.

    Raises:
        DataError: the checkpoint is of another training, or cannot be read.
    """
    model = learner.model
    learned = [tensor for tensor in model.parameters() if tensor.requires_grad]
    optimiser = torch.optim.AdamW(learned, peak, weight_decay=terms.weight_decay)
    run = checkpoints.load(checkpoint, identity, Run(), model, optimiser)
    saved = run.seconds
    while (progress := run.progress(terms, learner.steps_a_pass)) < 1:
        for group in optimiser.param_groups:
            group["lr"] = peak * rate(progress)
        torch.manual_seed(terms.seed * 1_000_003 + run.step)  # of dropout
        begun = clock()
        run.losses.append(_step(learner, learned, optimiser, run.step))
        run.seconds += clock() - begun
        run.step += 1
        progress = run.progress(terms, learner.steps_a_pass)
        if due := int(progress * JUDGEMENTS) > run.judgements:
            run.judgements = int(progress * JUDGEMENTS)
            run.judged.append(judge_now(model, judge))
            if run.judged[-1] == max(run.judged):
                run.best = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        if due or run.seconds - saved >= SAVE_SECONDS:
            checkpoints.save(checkpoint, identity, run, model, optimiser)
            saved = run.seconds
        watch(run, progress)
    if run.best is not None:
        model.load_state_dict(run.best)
    model.eval()
    return run


def judge_now(model: nn.Module, judge: Callable[[], float]) -> float:
    """`judge`, the model out of training meanwhile."""
    model.eval()
    return judge()


def rate(progress: float) -> float:
    """The learning rate's share of its peak: it rises, from a tenth, then falls to 0 as a cosine does."""
    return min(max(0.1, progress / WARM), 0.5 * (1 + math.cos(math.pi * progress)))


def _step(learner: Learner, learned: list[nn.Parameter], optimiser: torch.optim.Optimizer, step: int) -> float:
    """One step of the optimiser; returns the loss before it."""
    learner.model.train()
    loss = learner.loss(step)
    optimiser.zero_grad()
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(learned, 1.0)
    optimiser.step()
    return float(loss.detach())
