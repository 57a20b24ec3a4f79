"""The checkpoint of a training run: all that it needs to go on as if it had not been killed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from corag_ray.errors import DataError
from corag_ray.models.set_head import HeadShape
from corag_ray.models.token_matches import TokenMatches
from corag_ray.types import Combination
from jobs.combination.examples import Asked

Kept = TypeVar("Kept")
"""A dataclass of what plain data and tensors can say."""
Mined = dict[int, list[Combination]]
"""By example, combinations that a search with the head of that time preferred to the ideal one."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a head is trained.

    Attributes:
        shape: of the head.
        seed: of first weights, order, draws and dropout.
        epochs: passes over the questions; before each but the first, mistakes are mined.
        batch: questions a step.
        learning_rate: peak; warmed up over a twentieth of the steps, then falling to 0 as a cosine does.
        weight_decay: of AdamW.
        dropout: within the head.
        anchor: weight of the cross entropy that ties a score's logistic function to its grade.
        mined: questions searched a round.
    """

    shape: HeadShape
    seed: int = 0
    epochs: int = 4
    batch: int = 16
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    dropout: float = 0.1
    anchor: float = 0.2
    mined: int = 1500


@dataclass(frozen=True, slots=True)
class Example:
    """A question and its token matches, kept as float16."""

    asked: Asked
    matches: TokenMatches


@dataclass(slots=True)
class State:
    """All that a checkpoint holds beside weights and optimiser.

    Attributes:
        step: steps done.
        mined_for: the pass before which mistakes were last mined.
        mined: those of all rounds; a question's last ones.
        judged: what each pass was judged.
        losses: by step.
        best: weights of the head that was judged best.
    """

    step: int = 0
    mined_for: int = 0
    mined: Mined = field(default_factory=dict)
    judged: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    best: dict[str, Tensor] | None = None


def identity_of(examples: Sequence[Example], recipe: Recipe) -> str:
    """What a checkpoint belongs to."""
    told = [asdict(recipe), [(one.asked.text, one.asked.rows, list(map(sorted, one.asked.holds))) for one in examples]]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def save(path: Path, identity: str, state: Any, head: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """Write at once: a run that is killed meanwhile leaves the checkpoint before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(path.name + ".partial")
    kept = {one.name: getattr(state, one.name) for one in fields(state)}
    torch.save(
        {"identity": identity, "state": kept, "head": head.state_dict(), "optimiser": optimiser.state_dict()}, scratch
    )
    scratch.replace(path)


def load(path: Path, identity: str, fresh: Kept, head: nn.Module, optimiser: torch.optim.Optimizer) -> Kept:
    """The state of a checkpoint, of the kind of `fresh`, its weights loaded; `fresh` where there is none.

    Raises:
        DataError: it is of other examples or of another recipe, or cannot be read.
    """
    if not path.exists():
        return fresh
    try:
        stored: dict[str, Any] = torch.load(path, weights_only=True)
        if stored["identity"] != identity:
            raise DataError(f"{path} is of a run with other data or another recipe: remove it, or name another.")
        head.load_state_dict(stored["head"])
        optimiser.load_state_dict(stored["optimiser"])
        return type(fresh)(**stored["state"])
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, EOFError, UnpicklingError) as error:
        raise DataError(f"{path} is no checkpoint that can be read, remove it: {str(error)[:200]}") from error
