"""Trains a set head on graded combinations: ranking within a question, rounds of mined mistakes, and resume.

Everything drawn depends on the seed, the pass and the question alone, so a run that goes on from its checkpoint does
what an uninterrupted one does.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from corag_ray.models.set_head import SetHead
from corag_ray.models.token_matches import TokenMatches
from corag_ray.types import Combination
from jobs.combination import checkpoint as checkpoints
from jobs.combination.checkpoint import Example, Mined, Recipe, State
from jobs.combination.examples import combinations_of
from jobs.combination.loss import evidence_loss

SAVE_STEPS = 50
Mine = Callable[[SetHead, Sequence[int], int], Mined]
"""From a head, numbers of examples and the pass to what searches with it pick wrongly."""
Judge = Callable[[SetHead], float]
"""How good a head is on questions that are not trained on; higher is better."""
Watch = Callable[[State, int], None]
"""Told after every step where the run stands, and how many steps it has."""


@dataclass(slots=True)
class Trained:
    """The head that was judged best after a pass, what each pass was judged, losses by step, and what was mined."""

    head: SetHead
    judged: list[float]
    losses: list[float]
    mined: Mined


def unwatched(state: State, total: int) -> None:
    """Where nobody looks."""


def train(
    examples: Sequence[Example], recipe: Recipe, checkpoint: Path, judge: Judge, mine: Mine, watch: Watch = unwatched
) -> Trained:
    """Train, or go on where `checkpoint` stands; the file stays when all is done.

    Raises:
        DataError: the checkpoint is of other examples or of another recipe, or cannot be read.
    """
    torch.manual_seed(recipe.seed)
    head = SetHead(recipe.shape, recipe.dropout)
    optimiser = torch.optim.AdamW(head.parameters(), recipe.learning_rate, weight_decay=recipe.weight_decay)
    a_pass = math.ceil(len(examples) / recipe.batch)
    total = recipe.epochs * a_pass
    identity = checkpoints.identity_of(examples, recipe)
    state = checkpoints.load(checkpoint, identity, State(), head, optimiser)
    for step in range(state.step, total):
        epoch, place = divmod(step, a_pass)
        if state.mined_for < epoch:
            numbers = random.Random(f"{recipe.seed} {epoch} mined").sample(range(len(examples)), len(examples))
            found = mine(head.eval(), numbers[: recipe.mined], epoch)
            state.mined, state.mined_for = state.mined | found, epoch
            checkpoints.save(checkpoint, identity, state, head, optimiser)
        for group in optimiser.param_groups:
            group["lr"] = recipe.learning_rate * _rate(step, total)
        numbers = batches(examples, recipe, epoch)[place]
        torch.manual_seed(recipe.seed * 1_000_003 + step)  # of dropout
        state.losses.append(_step(head.train(), optimiser, examples, numbers, state.mined, recipe, epoch))
        state.step = step + 1
        if place == a_pass - 1:
            state.judged.append(judge(head.eval()))
            if state.judged[-1] == max(state.judged):
                state.best = {name: tensor.clone() for name, tensor in head.state_dict().items()}
        if state.step % SAVE_STEPS == 0 or place == a_pass - 1:
            checkpoints.save(checkpoint, identity, state, head, optimiser)
        watch(state, total)
    if state.best is not None:
        head.load_state_dict(state.best)
    return Trained(head.eval().requires_grad_(False), state.judged, state.losses, state.mined)


def batches(examples: Sequence[Example], recipe: Recipe, epoch: int) -> list[list[int]]:
    """The steps of a pass: shuffled, but questions of like length together, so that little is padded."""
    chance = random.Random(f"{recipe.seed} {epoch} order")
    order = chance.sample(range(len(examples)), len(examples))
    block = 8 * recipe.batch
    made: list[list[int]] = []
    for start in range(0, len(order), block):
        by_length = sorted(order[start : start + block], key=lambda number: len(examples[number].matches.query))
        made += [by_length[first : first + recipe.batch] for first in range(0, len(by_length), recipe.batch)]
    chance.shuffle(made)
    return made


def logits_of(head: SetHead, matches: Sequence[TokenMatches], chosen: Sequence[Sequence[Combination]]) -> Tensor:
    """Logits [questions, most combinations] of each question's combinations; 0 behind those that have fewer."""
    used = [sorted({number for combination in of for number in combination}) for of in chosen]  # of 40, about 15
    places = [{number: place for place, number in enumerate(numbers, start=1)} for numbers in used]
    rows = [head.rows(one.of_chunks(numbers).as_type(np.float32)) for one, numbers in zip(matches, used, strict=True)]
    tokens = max(one.shape[1] for one in rows)
    read = torch.tensor([[place < one.shape[1] for place in range(tokens)] for one in rows])
    firsts = np.cumsum([0, *(one.shape[0] for one in rows)])
    stacked = torch.cat([functional.pad(one, (0, 0, 0, tokens - one.shape[1])) for one in rows])
    by_length: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for owner, combinations in enumerate(chosen):
        for place, combination in enumerate(combinations):
            by_length[len(combination)].append((owner, place))
    logits = stacked.new_zeros((len(chosen), max(map(len, chosen))))
    for members in by_length.values():
        wanted = torch.tensor([[firsts[o], *(firsts[o] + places[o][n] for n in chosen[o][p])] for o, p in members])
        owners, columns = torch.tensor(members).T
        logits = logits.index_put((owners, columns), head(stacked[wanted], read[owners]))
    return logits


def _step(
    head: SetHead,
    optimiser: torch.optim.Optimizer,
    examples: Sequence[Example],
    numbers: Sequence[int],
    mined: Mined,
    recipe: Recipe,
    epoch: int,
) -> float:
    """One step of the optimiser on the questions of the given numbers; returns the loss before it."""
    chosen = []
    for number in numbers:
        chance = random.Random(f"{recipe.seed} {epoch} {number}")
        chosen.append([*combinations_of(examples[number].asked, chance), *mined.get(number, [])])
    logits = logits_of(head, [examples[number].matches for number in numbers], chosen)
    loss = evidence_loss(logits, [examples[number].asked for number in numbers], chosen, recipe.anchor)
    optimiser.zero_grad()
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
    optimiser.step()
    return float(loss.detach())


def _rate(step: int, total: int) -> float:
    """The learning rate's share of its peak."""
    warm = max(1, total // 20)
    return min((step + 1) / warm, 0.5 * (1 + math.cos(math.pi * step / total)))
